"""Write docs/models.md: every public model of the data folder on every target, with its result or its refusal.

    python docs/models.py DATA_FOLDER [FILE …]

Each file is converted by ``ipj-edge convert`` in a process of its own, so that nothing a model does to its engine ends
the run. Files named on the command line are looked at alone, and the table is printed instead of written.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ipj_edge.plugins import TARGETS, names
from ipj_edge.samples.preprocess import read_image

_SAMPLES = 500
_TIMEOUT_S = 600
_SUFFIXES = (".tflite", ".onnx", ".pt2")
# What a user has to say about a model that does not say it itself.
_OPTIONS: Mapping[str, Sequence[str]] = {
    "ch_ppocr_mobile_v2.0_cls_mobile.onnx": ("--input", "x:1x3x48x192"),
    "silero_vad_16k_op15.onnx": ("--input", "input:1x576"),
}
_MEAN, _STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])

Labelled = tuple[Any, Any]


def _cifar(data: Path, part: str) -> Labelled:
    pixels = read_image(data / "cifar10" / f"{part}_0.webp")
    images = pixels.reshape(25, 32, 40, 32, 3).transpose(0, 2, 1, 3, 4).reshape(1000, 32, 32, 3)
    return images[:_SAMPLES], np.load(data / "cifar10" / f"{part}_labels.npy")[:_SAMPLES]


def _normalised(images: Any) -> Any:
    return ((images.astype(np.float32) / 255 - _MEAN) / _STD).transpose(0, 3, 1, 2).astype(np.float32)


def _mnist(data: Path) -> Labelled:
    images = gzip.decompress((data / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((data / "mnist" / "t10k-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    return pixels[:_SAMPLES].astype(np.float32), np.frombuffer(labels, np.uint8, offset=8)[:_SAMPLES]


def _keywords(data: Path) -> Labelled:
    with np.load(data / "kws" / "mlperf_tiny_kws01.npz") as file:
        stored, labels = file["features_int8"][:_SAMPLES], file["labels"][:_SAMPLES]
    return ((stored.astype(np.float32) - 83) * np.float32(0.5847029))[..., None], labels


def _labelled(data: Path, file: Path) -> Labelled | None:
    """Return inputs and labels for a model whose data is there, in the model's layout and range."""
    makers: Mapping[str, Callable[[], Labelled]] = {
        "pretrainedResnet": lambda: _as_float(_cifar(data, "test")),
        "kws_ref": lambda: _keywords(data),
        "resnet20_cifar10_uint8": lambda: _cifar(data, "test"),
        "resnet20_cifar10": lambda: _mapped(_cifar(data, "test"), _normalised),
        "mnist_cntk": lambda: _mapped(_mnist(data), lambda images: images[:, None]),
        "mnist_lstm": lambda: _mapped(_mnist(data), lambda images: images / 255),
        "keras_lstm_mnist_ptq": lambda: _mapped(_mnist(data), lambda images: images / 255),
    }
    found = next((make for start, make in makers.items() if file.name.startswith(start)), None)
    return None if found is None else found()


def _as_float(labelled: Labelled) -> Labelled:
    return _mapped(labelled, lambda images: images.astype(np.float32))


def _mapped(labelled: Labelled, change: Callable[[Any], Any]) -> Labelled:
    return np.ascontiguousarray(change(labelled[0])), labelled[1]


def convert(data: Path, file: Path, targets: Sequence[str], folder: Path) -> dict[str, str]:
    """Convert one file for all targets and return what came of each."""
    command = [sys.executable, "-m", "ipj_edge", "convert", str(file), "-o", str(folder / "dist"), "--json", "-"]
    command += [part for target in targets for part in ("--target", target)]
    command += _OPTIONS.get(file.name, ())
    if file.name == "silero_vad_16k_op15.onnx":
        frames = np.random.default_rng(0).normal(0, 0.1, (8, 576)).astype(np.float32)
        arrays = {"input": frames, "state": np.zeros((2, 1, 128), np.float32)}
        np.savez(folder / "data.npz", **arrays, sr=np.int64(16000))
        command += ["--data", str(folder / "data.npz")]
    labelled = _labelled(data, file)
    if labelled is not None:
        np.savez(folder / "data.npz", x=labelled[0], labels=labelled[1])
        command += ["--data", str(folder / "data.npz")]
    if file.suffix == ".pt2":
        np.savez(folder / "cal.npz", x=_normalised(_cifar(data, "train")[0]))
        command += ["--calibration", str(folder / "cal.npz")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if not ran.stdout.strip():
        told = [line for line in ran.stderr.splitlines() if line.startswith("ipj-edge: ")]
        why = told[-1].removeprefix("ipj-edge: ") if told else f"no reason was given: {ran.stderr[-200:]}"
        return dict.fromkeys(targets, f"refused {ran.returncode}: {why}")
    return {outcome["target"]: _cell(outcome) for outcome in json.loads(ran.stdout)}


def _cell(outcome: Mapping[str, Any]) -> str:
    if outcome["error"] is not None:
        return f"refused {outcome['exit_code']}: {outcome['error']}"
    manifest = json.loads((Path(outcome["bundle"]) / "manifest.json").read_text())
    figures = manifest["parity"]["outputs"]
    distances = [each["relative_l2"] for each in figures if each.get("relative_l2") is not None]
    shares = [each["agreement"] for each in figures if each.get("agreement") is not None]
    worst = f"{max(distances):.0e}" if distances else f"agreement {min(shares):.0%}" if shares else "not judged"
    accuracy = "" if outcome["accuracy"] is None else f"{outcome['accuracy']['bundle']:.3f}, "
    proxy = manifest["parity"]["verified_on"].removeprefix("proxy:")
    on = "" if proxy == "target" else f", by {proxy}"
    scheme = " dynamic" if manifest.get("scheme") == "dynamic" else ""
    return f"{outcome['precision']}{scheme}: {accuracy}{worst}{on}"


def table(rows: Mapping[str, Mapping[str, str]], targets: Sequence[str]) -> str:
    """Return the page: a table with numbered refusals below it."""
    reasons: list[str] = []
    lines = [f"| model | {' | '.join(targets)} |", "|---" * (len(targets) + 1) + "|"]
    for name, cells in rows.items():
        lines.append(f"| `{name}` | {' | '.join(_shown(cells[target], reasons) for target in targets)} |")
    numbered = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join([_HEAD, *lines, "", "Refusals, by their numbers:", "", *numbered, ""])


def _shown(cell: str, reasons: list[str]) -> str:
    if not cell.startswith("refused "):
        return cell
    head, _, reason = cell.partition(": ")
    if reason not in reasons:
        reasons.append(reason)
    return f"{head.replace('refused', 'exit')} [{reasons.index(reason) + 1}]"


_HEAD = f"""# Public models on every target

Written by `docs/models.py` over a folder of public models; nothing here is typed by hand. Each file was converted in
its own precision with nothing said beyond the sizes and ranges it leaves open. A cell is the bundle's precision, its
top-1 accuracy on the first {_SAMPLES} labelled samples where there are any, and the largest relative L2 between source
and bundle over all outputs and inputs; `by` names the target that stood in for one that cannot run here. `exit N [k]`
is a refusal with its exit code and the reason below. In the accuracies of the LSTM models every sample begins with a
fresh state.
"""


def main(data: Path, wanted: Sequence[str]) -> int:
    """Convert every model and write the page, or print it for the wanted ones."""
    targets = names(TARGETS)
    files = [file for file in sorted((data / "models").rglob("*")) if file.suffix in _SUFFIXES]
    chosen = [file for file in files if not wanted or file.name in wanted]
    rows = {}
    for file in chosen:
        with tempfile.TemporaryDirectory() as folder:
            rows[str(file.relative_to(data / "models"))] = convert(data, file, targets, Path(folder))
        sys.stderr.write(f"{file.name}: {rows[str(file.relative_to(data / 'models'))]}\n")
    page = table(rows, targets)
    if wanted:
        sys.stdout.write(page)
    else:
        (Path(__file__).parent / "models.md").write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
