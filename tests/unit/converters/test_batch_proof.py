"""An axis holds samples only if the source says so itself, in three runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ipj_edge.errors import SourceError
from ipj_edge.protocols import Array
from ipj_edge.values import TensorSpec
from ipj_edge_converters.sources.batch_proof import ask, ask_at

X = TensorSpec(name="x", shape=("batch", 4), dtype="float32")
Y = TensorSpec(name="y", shape=("batch", 4), dtype="float32")
WEIGHTS = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


def _attention(x: Array) -> Array:
    scores = np.exp(x @ x.T)
    return (scores / scores.sum(1, keepdims=True)) @ x


def _recurrent(x: Array) -> Array:
    state, states = np.zeros(4, np.float32), []
    for row in x:
        state = np.tanh(row + 0.5 * state)
        states.append(state)
    return np.stack(states)


PROVEN = {
    "product": lambda x: x @ WEIGHTS,
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "constant": np.zeros_like,
    "infinity": lambda x: np.where(x > 0, -np.inf, x),
}
MIXED = {
    "mean": lambda x: x - x.mean(0),
    "statistics": lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5),
    "cumsum": lambda x: x.cumsum(0),
    "flip": lambda x: x[::-1],
    "sort": lambda x: np.sort(x, 0),
    "attention": _attention,
    "recurrent": _recurrent,
    "softmax over the batch": lambda x: np.exp(x) / np.exp(x).sum(0),
    "place": lambda x: x + np.arange(len(x), dtype=np.float32)[:, None],
    "first": lambda x: np.repeat(x[:1], len(x), 0),
}


class _Source:
    def __init__(self, function: Callable[[Array], Array], only: int | None = None) -> None:
        self.runs, self._function, self._only = 0, function, only

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        self.runs += 1
        if self._only is not None and len(arrays[0]) != self._only:
            raise SourceError("one size only")
        return [self._function(arrays[0])]


@pytest.mark.parametrize("name", PROVEN)
def test_what_answers_each_sample_alone_is_proven_in_three_runs(name: str) -> None:
    source = _Source(PROVEN[name])
    asked = ask(source, (X,), (Y,), largest=32)
    assert (asked.ran, asked.reason, source.runs) == (True, "", 3)
    fixed = _Source(PROVEN[name], only=9)
    asked = ask_at(fixed, (X,), (Y,), size=9)
    assert (asked.ran, asked.reason, fixed.runs) == (True, "", 3)


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_or_orders_its_samples_is_not_a_batch(name: str) -> None:
    asked = ask(_Source(MIXED[name]), (X,), (Y,), largest=32)
    assert "the model mixes what lies along axis 0 of 'x'" in asked.reason
    for size in (2, 3, 9, 64):
        assert "mixes" in ask_at(_Source(MIXED[name], only=size), (X,), (Y,), size=size).reason


@pytest.mark.parametrize("largest", [2, 3, 4])
def test_a_source_of_few_samples_is_asked_with_few(largest: int) -> None:
    assert ask(_Source(PROVEN["product"]), (X,), (Y,), largest=largest).reason == ""
    assert "mixes" in ask(_Source(MIXED["cumsum"]), (X,), (Y,), largest=largest).reason


def test_a_source_of_one_size_does_not_run_when_asked_at_others() -> None:
    assert not ask(_Source(PROVEN["product"], only=9), (X,), (Y,), largest=32).ran


def test_an_output_that_reduces_the_batch_away_proves_nothing() -> None:
    summed = TensorSpec(name="y", shape=(4,), dtype="float32", batch_axis=None)
    asked = ask(_Source(lambda x: x.sum(0)), (X,), (summed,), largest=32)
    assert asked.reason == "no output has an answer for each place along axis 0 of 'x'"


def test_indices_that_nobody_gave_a_range_differ_between_samples() -> None:
    ids = TensorSpec(name="ids", shape=("batch", 4), dtype="int64")
    assert "mixes" in ask(_Source(lambda ids: ids[::-1] * 1.0), (ids,), (Y,), largest=32).reason


def test_samples_may_lie_on_another_axis_and_a_setting_is_shared() -> None:
    state = TensorSpec(name="x", shape=(4, "batch"), dtype="float32", batch_axis=1)
    shared = TensorSpec(name="w", shape=(4, 4), dtype="float32", batch_axis=None)
    out = TensorSpec(name="y", shape=(4, "batch"), dtype="float32", batch_axis=1)

    def run(arrays: Sequence[Array]) -> list[Array]:
        return [arrays[1] @ arrays[0]]

    assert ask(run, (state, shared), (out,), largest=32).reason == ""
