"""A target whose inferences cost a known CPU time, as an outsider's plugin: no engine, no noise but the machine's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ipj_edge.bundles.bundle import record_files, write_manifest
from ipj_edge.bundles.manifest import (
    SCHEMA_VERSION,
    BatchSpec,
    Manifest,
    OperatorCount,
    ParityRecord,
    Requirements,
    SourceRecord,
    StageSpec,
)
from ipj_edge.runtime.golden import write_golden
from ipj_edge.values import Port, TensorSpec

SPIN = """
import time
from ipj_edge.values import Availability, EffectiveSettings


class Session:
    def __init__(self, stage, path, threads):
        self.stage = stage
        self.spin_s, self.sleep_s = map(float, (path / "work.txt").read_text().split())
        self.effective = EffectiveSettings(
            engine="spin", engine_version="1", threads=threads or 1, execution_precision="f32", affinity=1
        )

    def run(self, feeds):
        end = time.thread_time() + self.spin_s
        while time.thread_time() < end:
            pass
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return {"logits": feeds["x"]}

    def clone(self):
        return self

    def close(self):
        pass


class Spin:
    name, engine, precisions, boundaries = "spin-cpu", "spin", ("fp32", "int8"), ("package",)

    def availability(self):
        return Availability(available=True)

    def open(self, bundle, settings):
        return tuple(Session(stage, bundle.path, settings.threads) for stage in bundle.manifest.stages)
"""


@pytest.fixture
def spin_target(install_plugin: Callable[[str, str, str], None]) -> None:
    """Install the target; it works in child processes too."""
    install_plugin("ipj_edge.targets", "spin-cpu = spin_target:Spin", SPIN)


def _manifest(name: str, precision: str, port: Port) -> Manifest:
    spec = TensorSpec(name="x", shape=("batch", 4), dtype="float32")
    stage = StageSpec(
        name="all", file="work.txt", takes=(port,), adds=(Port(name="logits", engine_name="y", shape=("batch", 4),
        dtype="float32"),), exit_output="logits", precision=precision, macs=1000, parameters=0, file_bytes=0,
        operators=OperatorCount(total=1),
    )  # fmt: skip
    return Manifest(
        schema_version=SCHEMA_VERSION, digest="0" * 64, name=name, target="spin-cpu", precision=precision,
        created_with={}, source=SourceRecord(file="spin", kind="test", sha256=""), files=(), inputs=(spec,),
        outputs=(TensorSpec(name="logits", shape=("batch", 4), dtype="float32", meaning="logits"),), stages=(stage,),
        batch=BatchSpec(static=None, probed=(1,), max=32),
        parity=ParityRecord(verified_on="target", tolerance=0.0, seed=0, outputs=()),
        requires=Requirements(engine="spin", engine_version="1"), golden_samples=16,
    )  # fmt: skip


@pytest.fixture
def spin_bundle(spin_target: None) -> Callable[..., Path]:
    """Return a function that writes a bundle whose inference spins and sleeps for known times."""

    def write(
        folder: Path, *, spin_s: float = 0.001, sleep_s: float = 0.0, name: str = "work", precision: str = "fp32"
    ) -> Path:
        path = folder / f"{name}.spin-cpu.{precision}.ipj"
        path.mkdir(parents=True)
        (path / "work.txt").write_text(f"{spin_s} {sleep_s}")
        inputs = np.random.default_rng(0).random((16, 4)).astype(np.float32)
        write_golden(path, {"x": inputs}, {"logits": inputs})
        port = Port(name="x", engine_name="x", shape=("batch", 4), dtype="float32")
        manifest = _manifest(name, precision, port)
        files = record_files(path)
        import msgspec

        write_manifest(path, msgspec.structs.replace(manifest, files=files))
        return path

    return write


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Data whose largest value is the label, nine times out of ten."""
    rng = np.random.default_rng(1)
    x = rng.random((200, 4)).astype(np.float32)
    labels = x.argmax(axis=1)
    labels[:20] = (labels[:20] + 1) % 4
    np.savez(tmp_path / "data.npz", x=x, labels=labels)
    return tmp_path / "data.npz"
