"""What the early-exit benchmarks share: convert for every engine, certify, time, print."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.compress.shared import TARGETS
from benchmarks.shared import public_data
from numpy.typing import NDArray
from torch import nn

import ipj_edge
from ipj_edge.conversion import ConvertRequest, convert
from ipj_edge.exits import TuneRequest
from ipj_edge.tuning.tuning import TuningOptions, tune_exits
from ipj_edge.values import Precision, Settings, TensorSpec

EXITS = ("exit_1", "exit_2", "final")
ROUNDS, CALLS = 12, 250


class Part(NamedTuple):
    """Some images (n, channels, side, side) with labels (n,)."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


class Case(NamedTuple):
    """A network with exits, and data it has not seen.

    Attributes:
        name: Name of the bundles.
        factory: Source of the network, ``file.py:callable``.
        plain: The same network with its last exit alone.
        calibration: Images for int8.
        tune: What thresholds are searched and certified on.
        test: What everything is judged on.
    """

    name: str
    factory: str
    plain: str
    calibration: NDArray[np.float32]
    tune: Part
    test: Part


class Times(NamedTuple):
    """Seconds of one inference: leaving early, by the bundle's unsplit program, and by a plain conversion."""

    early: float
    unsplit: float
    plain: float


def parser(text: str) -> argparse.ArgumentParser:
    """Return a parser with the argument that all of them take: the folder of public data."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    public_data.add_argument(made)
    return made


def arguments(text: str) -> argparse.Namespace:
    """Parse the data folder, the precision, and whether to train anew."""
    made = parser(text)
    made.add_argument("--precision", default="fp32", choices=["fp32", "int8"])
    made.add_argument("--train", action="store_true", help="train again, also where weights of an earlier run are")
    return made.parse_args()


def trained(net: nn.Module, weights: Path) -> nn.Module:
    """Return a network with the weights trained last, in evaluation mode."""
    net.load_state_dict(torch.load(weights, weights_only=True))
    return net.eval()


def last_exit(net: nn.Module) -> nn.Module:
    """Return the last exit of a staged network alone."""
    return nn.Sequential(*net.stages, net.heads[-1])


def measure(case: Case, precision: Precision, goals: tuple[float, float]) -> None:
    """Convert, certify harm ≤ 1 % at 95 %, time single inferences, print a line an engine.

    Args:
        case: The network and its data.
        precision: Precision of the bundles.
        goals: How many times less time it should take: on the best engine, and on each.
    """
    with tempfile.TemporaryDirectory() as folder:
        gains = _gains(case, precision, Path(folder))
    best, each = goals
    met = max(gains) >= best and min(gains) >= each
    print(f"goal: {best:g} times less on one engine, {each:g} on each: {'met' if met else 'missed'}")


def _gains(case: Case, precision: Precision, folder: Path) -> list[float]:
    """Print a line an engine; return how many times less time each takes, 1 where nothing is certified."""
    np.savez(folder / "cal.npz", image=case.calibration)
    np.savez(folder / "tune.npz", image=case.tune.images, labels=case.tune.labels)
    plain = _bundles(case, case.plain, (EXITS[-1],), precision, folder / "plain")
    gains = []
    for target, bundle in _bundles(case, case.factory, EXITS, precision, folder / "exits").items():
        options = TuningOptions(
            data=str(folder / "tune.npz"),
            request=TuneRequest(epsilon=0.01, delta=0.05),
            objective="seconds",
            settings=Settings(threads=1),
        )
        tuned = tune_exits(bundle, options).tuned
        if not tuned.certificate.holds:
            print(f"{target:<16} nothing certified: {tuned.certificate.reason}")
            gains.append(1.0)
            continue
        times = _times(bundle, plain[target], case.test.images)
        _report(target, bundle, case.test, times, tuned.never.cost / tuned.expected.cost)
        gains.append(times.unsplit / times.early)
    return gains


def _bundles(case: Case, source: str, outputs: Sequence[str], precision: Precision, into: Path) -> dict[str, Path]:
    request = ConvertRequest(
        source=source,
        targets=TARGETS,
        precisions=(precision,),
        into=into,
        inputs=(TensorSpec(name="image", shape=(1, *case.calibration.shape[1:]), dtype="float32"),),
        output_names=tuple(outputs),
        meanings=dict.fromkeys(outputs, "logits"),
        calibration=str(into.parent / "cal.npz"),
        name=case.name,
    )
    found = {}
    for outcome in convert(request):
        if outcome.bundle is None:
            raise outcome.error or RuntimeError(outcome.target)
        found[outcome.target] = outcome.bundle.path
    return found


def _times(bundle: Path, plain: Path, x: NDArray[np.float32]) -> Times:
    """Time all three in alternating rounds over the same images; medians over the rounds."""
    models = (
        ipj_edge.load(bundle, threads=1),
        ipj_edge.load(bundle, threads=1, exits="off"),
        ipj_edge.load(plain, threads=1),
    )
    spent: tuple[list[float], ...] = ([], [], [])
    for number in range(ROUNDS):
        rows = x[(np.arange(CALLS) + number * CALLS) % len(x)]
        for turn in range(len(models)):
            place = (turn + number) % len(models)
            model = models[place]
            model.run(rows[:1])
            start = perf_counter()
            for row in rows:
                model.run(row[None])
            spent[place].append((perf_counter() - start) / CALLS)
    for model in models:
        model.close()
    return Times(*map(statistics.median, spent))


def _report(target: str, bundle: Path, test: Part, times: Times, expected: float) -> None:
    with ipj_edge.load(bundle, threads=1) as early, ipj_edge.load(bundle, threads=1, exits="off") as full:
        left, whole = early.run(test.images), full.run(test.images)
    answer, reference = left.outputs["final"].argmax(1), whole.outputs["final"].argmax(1)
    right, before = answer == test.labels, reference == test.labels
    shares = np.bincount(left.exit_indices, minlength=len(EXITS)) / len(right)
    gain = times.unsplit / times.early
    print(
        f"{target:<16} {1e6 * times.unsplit:7.1f} µs unsplit, {1e6 * times.early:6.1f} µs leaving early: "
        f"{gain:.2f}× less (expected {expected:.2f}×, off by {100 * abs(gain / expected - 1):.0f} %); "
        f"unsplit / plain conversion {times.unsplit / times.plain:.3f}; exits {shares.round(3).tolist()}; "
        f"accuracy {right.mean():.4f}, full {before.mean():.4f}; harm {(before & ~right).mean():.4f}, certified ≤ 0.01",
        flush=True,
    )
