"""A network as torch's own exporter writes it."""

from __future__ import annotations

import numpy as np
import pytest

from ipj_edge.values import Settings
from ipj_edge_targets.openvino_cpu import OpenvinoCpu


@pytest.fixture
def exported(onnx_source, tensor_spec, tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, groups=8, stride=2),
        torch.nn.Hardswish(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 4),
    ).eval()
    torch.onnx.export(
        net,
        (torch.randn(2, 3, 12, 10),),
        tmp_path / "net.onnx",
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},),
        input_names=["image"],
        output_names=["logits"],
        verbose=False,
    )
    inputs = (tensor_spec("image", ("batch", 3, 12, 10)),)
    return onnx_source(tmp_path / "net.onnx", inputs, (tensor_spec("logits", ("batch", 4)),))


@pytest.mark.slow
# torch's exporter warns about its own use of deprecated names.
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning")
def test_a_torch_export_converts_with_names_and_dynamic_batch(exported, convert, tmp_path):
    for precision, calibration, allowed in (("fp32", None, 1e-4), ("int8", exported.calibration(), 0.15)):
        bundle = convert(exported, tmp_path / precision, precision, calibration)
        (stage,) = bundle.manifest.stages
        assert stage.takes[0].shape == ("batch", 3, 12, 10)
        (session,) = OpenvinoCpu().open(bundle, Settings(threads=1))
        for batch in (1, 2, 32):
            feeds = exported.feeds(batch, seed=50)
            wanted = exported.run(feeds)["logits"]
            got = session.run(feeds)["logits"]
            assert np.linalg.norm(got - wanted) / np.linalg.norm(wanted) <= allowed
        for name in ("model.xml", "model.bin"):
            content = (tmp_path / precision / name).read_bytes()
            assert str(tmp_path).encode() not in content
            assert b"site-packages" not in content
