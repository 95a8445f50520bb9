"""The four tasks of MLPerf Tiny as a ready suite, where models and data are present.

::

    python examples/mlperf_tiny.py prepare ../shared/data tiny       # bundles, data and tiny/suite.toml
    ipj-edge bench --suite tiny/suite.toml --json tiny/result.json
    python examples/mlperf_tiny.py report tiny/result.json           # in that benchmark's reporting form

FOLDER holds the reference models under ``models/mlperf_tiny`` (mlcommons/tiny, Apache-2.0) and data for the tasks.
Quality is checked where data is available: keyword spotting on the benchmark's own 1,000 clips, image classification on
the first 1,000 test images of CIFAR-10, visual wake words on a dozen pictures (not the benchmark's own set),
anomaly detection only if you bring ``anomaly/toycar.npz`` with ``x`` of shape (n, 640) and ``labels`` (1 is abnormal).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ipj_edge.benchmark.compare.quality_targets import WINDOW_S, WINDOWS, tiny_form
from ipj_edge.benchmark.result.files import read_result
from ipj_edge.benchmark.result.schema import Entry, QualityTarget
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.units import joules_text
from ipj_edge.values import Meaning

# Task: model file, what its output holds, metric, quality target (MLPerf Tiny, arXiv 2106.07597, table 1).
TASKS: dict[str, tuple[str, Meaning, str, float]] = {
    "kws": ("kws_ref_model.tflite", "probabilities", "top-1", 0.90),
    "vww": ("vww_96_int8.tflite", "probabilities", "top-1", 0.80),
    "ic": ("pretrainedResnet_quant.tflite", "probabilities", "top-1", 0.85),
    "ad": ("ad01_int8.tflite", "other", "reconstruction-auc", 0.85),
}
PEOPLE = ("grace_hopper.png", "squat.png")
OTHERS = ("bird.png", "cat.png", "dragonfly.png", "hot_dog.jpg", "parrot.jpg", "pets.jpg", "sunflower.png")


def keywords(folder: Path) -> dict[str, np.ndarray]:
    """Return the benchmark's accuracy set: int8 features as the real values they stand for."""
    with np.load(folder / "kws" / "mlperf_tiny_kws01.npz") as file:
        features = (file["features_int8"].astype(np.float32) - 83) * np.float32(0.5847029)
        return {"x": features[..., None], "labels": file["labels"].astype(np.int64)}


def pictures(folder: Path) -> dict[str, np.ndarray]:
    """Return pictures with and without a person, 96×96, values 0..1."""
    from PIL import Image

    names = [*PEOPLE, *OTHERS]
    images = [
        np.asarray(Image.open(folder / "images" / name).convert("RGB").resize((96, 96), Image.Resampling.BILINEAR))
        for name in names
    ]
    labels = np.array([name in PEOPLE for name in names], dtype=np.int64)
    return {"x": (np.stack(images) / 255).astype(np.float32), "labels": labels}


def cifar10(folder: Path) -> dict[str, np.ndarray]:
    """Return the first 1,000 test images of CIFAR-10, raw values 0..255."""
    from PIL import Image

    sheet = np.asarray(Image.open(folder / "cifar10" / "test_0.webp").convert("RGB"))
    images = sheet.reshape(25, 32, 40, 32, 3).transpose(0, 2, 1, 3, 4).reshape(1000, 32, 32, 3)
    labels = np.load(folder / "cifar10" / "test_labels.npy").astype(np.int64)
    return {"x": images.astype(np.float32), "labels": labels}


def machine_sounds(folder: Path) -> dict[str, np.ndarray]:
    """Return labelled windows where the user brought them, else the windows of one normal sound, without labels."""
    own = folder / "anomaly" / "toycar.npz"
    if own.exists():
        with np.load(own) as file:
            return {"x": file["x"].astype(np.float32), "labels": file["labels"].astype(np.int64)}
    rows = np.fromfile(folder / "anomaly" / "normal_id_01_00000000_hist_librosa.bin", "<f4").reshape(200, 128)
    return {"x": np.stack([rows[start : start + 5].reshape(-1) for start in range(196)])}


DATA = {"kws": keywords, "vww": pictures, "ic": cifar10, "ad": machine_sounds}


def prepare(folder: Path, into: Path, *, window_s: float = WINDOW_S) -> Path:
    """Convert the models for tflite-cpu, write the data and the suite; return the suite's path."""
    into.mkdir(parents=True, exist_ok=True)
    sweeps = []
    for task, (model, meaning, metric, target) in TASKS.items():
        path = folder / "models" / "mlperf_tiny" / model
        if not path.exists():
            print(f"{task}: left out, {path} is missing", file=sys.stderr)
            continue
        request = ConvertRequest(
            source=str(path), targets=("tflite-cpu",), into=into / "dist", name=task, output_names=("scores",),
            meanings={"scores": meaning}, force=True,
        )  # fmt: skip
        for outcome in convert(request):
            if outcome.error is not None:
                raise outcome.error
        data = DATA[task](folder)
        np.savez(into / f"{task}.npz", **data)  # type: ignore[arg-type]
        sweep = f'[[sweep]]\nbundles = ["dist/{task}.*.ipj"]\ndata = "{task}.npz"\nthreads = [1]\n'
        if "labels" in data:
            sweep += f'metrics = ["{metric}"]\nat_least = {{ "{metric}" = "{100 * target:g}%" }}\n'
        else:
            print(f"{task}: its data have no labels here, so its quality is not judged", file=sys.stderr)
        sweeps.append(sweep)
    # Five windows whatever their spread: the duration is up once they are measured.
    window = f"{window_s:g}s"
    head = f'name = "MLPerf Tiny"\nrounds = 1\nwindows = {WINDOWS}\nwindow = "{window}"\nduration = "{window}"\n\n'
    (into / "suite.toml").write_text(head + "\n".join(sweeps))
    return into / "suite.toml"


def tiny_row(entry: Entry) -> str:
    """Write an entry as a line of a table: name, quality, inf/s, joules."""
    form = tiny_form(entry)
    quality = ", ".join(_verdict(target) for target in entry.targets) or "no target"
    energy = "—" if form.joules_per_inference is None else f"{joules_text(form.joules_per_inference)}/inf"
    note = "" if form.by_the_rules else f" ({form.reason})"
    return f"{entry.bundle:<44} {quality:<44} {form.inferences_per_s:10,.1f} inf/s  {energy}{note}"


def _verdict(target: QualityTarget) -> str:
    if target.met is None or target.value is None:
        return f"{target.figure} not judged"
    return f"{target.figure} {target.value:.4f} {'≥' if target.met else '<'} {target.least:g}"


def main(arguments: list[str]) -> None:
    """Prepare a suite, or report a result of it."""
    if len(arguments) == 3 and arguments[0] == "prepare":
        print(f"wrote {prepare(Path(arguments[1]), Path(arguments[2]))}")
    elif len(arguments) == 2 and arguments[0] == "report":
        for entry in read_result(Path(arguments[1])).results:
            print(tiny_row(entry))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
