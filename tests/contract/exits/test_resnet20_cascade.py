"""ResNet-20 with three exits on CIFAR-10, as published: the same cascade on every target, at both precisions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ipj_edge
from ipj_edge.exits import ExitPolicy

pytestmark = [pytest.mark.data, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
EXITS = ("logits_exit1", "logits_exit2", "logits_final")
# Published with the file: who leaves at softmax confidence 0.95, and how many of 1,000 test images are then right.
SHARES, ACCURACY = (0.069, 0.318), 0.915
ALLOWED = {"fp32": 0.005, "int8": 0.015}
BUNDLES = [
    f"{source}.{target}.{precision}.ipj"
    for source, targets in (
        ("onnx", ("onnxruntime-cpu", "openvino-cpu")),
        ("module", ("onnxruntime-cpu", "openvino-cpu", "tflite-cpu")),
    )
    for target in targets
    for precision in ("fp32", "int8")
]


@pytest.fixture(scope="module")
def cascades(data_folder: Path, tmp_path_factory: pytest.TempPathFactory, ipj_edge_cli: Callable) -> Path:
    """All of `BUNDLES`, from the published ONNX graph and from a torch module with the same weights."""
    folder = tmp_path_factory.mktemp("cascades")
    (folder / "net.py").write_text(
        f"import sys\nfrom pathlib import Path\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from benchmarks.exits import resnet20_exits\n"
        f"def build():\n    return resnet20_exits.network(Path({str(data_folder)!r}))\n"
    )
    sys.path.insert(0, str(ROOT))
    from benchmarks.exits import resnet20_exits

    sys.path.remove(str(ROOT))
    np.savez(folder / "cal.npz", input=resnet20_exits.images(data_folder, "train_0")[:200])
    onnx = data_folder / resnet20_exits.ONNX_FILE
    module = (f"{folder / 'net.py'}:build", "--input", "input:1x3x32x32")
    for name, source, targets in (
        ("onnx", (onnx,), ("onnxruntime-cpu", "openvino-cpu")),
        ("module", module, ("onnxruntime-cpu", "openvino-cpu", "tflite-cpu")),
    ):
        ran = ipj_edge_cli(
            "convert", *source, "--split-at", "exits", "--name", name, "-o", folder,
            *(part for target in targets for part in ("--target", target)),
            *(part for exit_name in EXITS for part in ("--output", f"{exit_name}:logits")),
            "--precision", "fp32", "--precision", "int8", "--calibration", folder / "cal.npz",
        )  # fmt: skip
        assert ran.code == 0, ran
    return folder


@pytest.mark.parametrize("name", BUNDLES)
def test_the_published_cascade_is_reproduced(cascades: Path, data_folder: Path, name: str) -> None:
    from benchmarks.exits import resnet20_exits

    images = resnet20_exits.images(data_folder, "test_0")
    labels = np.load(data_folder / "cifar10" / "test_labels.npy")
    policy = ExitPolicy(rule="max-probability", thresholds=(0.95, 0.95))
    with ipj_edge.load(cascades / name, threads=1, exits=policy) as model:
        result = model.run(images)
    (answers,) = result.outputs.values()
    allowed = ALLOWED["int8" if "int8" in name else "fp32"]
    assert (answers.argmax(1) == labels).mean() == pytest.approx(ACCURACY, abs=allowed)
    for index, share in enumerate(SHARES):
        assert (result.exit_indices == index).mean() == pytest.approx(share, abs=2 * allowed)
