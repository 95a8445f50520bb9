"""What a model costs on a target: it is converted to fp32, run there, and its median latency or its joules are read."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import torch
from torch import nn

from ipj_edge.benchmark import bench
from ipj_edge.benchmark.result.schema import Entry
from ipj_edge.benchmark.run.runner import BenchOptions
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.values import Settings
from ipj_edge.writing import write_file
from ipj_edge_compress.errors import GoalError
from ipj_edge_compress.recipes.programs import export, input_name

What = Literal["latency", "joules"]


class MeasuredCost:
    """Seconds or joules of one inference on a target, on one thread; a cost to prune by.

    Models of the same shapes cost the same and are measured once. What was measured is kept in a file, so that a run
    that goes on after a kill decides as it did before.
    """

    def __init__(self, what: What, target: str, example: torch.Tensor, folder: Path, *, probe: str = "auto") -> None:
        """Say what to measure.

        Args:
            what: ``latency`` (median seconds) or ``joules``.
            target: Name of the target; its engine has to run on this machine.
            example: Example input of two samples or more.
            folder: Folder for what is converted, and for the file of what was measured.
            probe: Power probe for joules.
        """
        self._what, self._target, self._example, self._probe = what, target, example, probe
        self._folder, self._file = folder, folder / f"{what}_{target}.json"
        self._known: dict[str, float] = {}
        if self._file.exists():
            self._known = msgspec.json.decode(self._file.read_bytes(), type=dict[str, float])

    def __call__(self, module: nn.Module) -> float:
        """Return the seconds or joules of one inference.

        Raises:
            IpjEdgeError: the conversion failed, or the target cannot run here.
            GoalError: there are no joules to be had, with the reason.
        """
        key = _shapes(module)
        if key not in self._known:
            self._known[key] = self._measured(module)
            write_file(self._file, msgspec.json.encode(self._known))
        return self._known[key]

    def _measured(self, module: nn.Module) -> float:
        program = self._folder / "candidate.pt2"
        export(module, input_name(module), self._example, program)
        into = self._folder / "candidate"
        shutil.rmtree(into, ignore_errors=True)
        (outcome,) = convert(
            ConvertRequest(source=str(program), targets=(self._target,), precisions=("fp32",), into=into, name="one")
        )
        if outcome.error is not None:
            raise outcome.error
        assert outcome.bundle is not None
        probe = self._probe if self._what == "joules" else "none"
        options = BenchOptions(settings=Settings(threads=1), probe=probe, windows=5, window_s=0.4)
        entry = bench([outcome.bundle.path], options).results[0]
        shutil.rmtree(into)
        program.unlink()
        return _READ[self._what](entry)


def _joules(entry: Entry) -> float:
    energy = entry.joules_per_inference
    if energy.value is None:
        raise GoalError(f"joules on this machine are not known, so nothing can be pruned by them: {energy.reason}")
    return energy.value


def _seconds(entry: Entry) -> float:
    return entry.latency_s.p50


_READ: dict[What, Callable[[Entry], float]] = {"latency": _seconds, "joules": _joules}


def _shapes(module: nn.Module) -> str:
    told = "\n".join(f"{name} {tuple(value.shape)}" for name, value in module.state_dict().items())
    return hashlib.sha256(told.encode()).hexdigest()
