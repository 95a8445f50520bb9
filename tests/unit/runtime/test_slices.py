"""Slices along every axis but the batch, and places that hold no finite number."""

import numpy as np
import pytest

from ipj_edge.protocols import Array
from ipj_edge.runtime import slices
from ipj_edge.runtime.parity import ParityCheck, compare
from ipj_edge.values import Precision, TensorSpec


def _compared(want: Array, got: Array, precision: Precision, *, batched: bool = True, **more: bool) -> ParityCheck:
    spec = TensorSpec(name="y", shape=want.shape, dtype=str(want.dtype), batch_axis=0 if batched else None)
    (one,) = compare((spec,), {"y": want}, {"y": got}, precision=precision, inputs="calibration", **more)  # type: ignore[arg-type]
    return one


def _text(*arguments: object, **more: object) -> str:
    return "; ".join(_compared(*arguments, **more).failures)  # type: ignore[arg-type]


@pytest.fixture
def head() -> Array:
    """Four rows of boxes beside four rows of scores, as a detection head joins them."""
    rng = np.random.default_rng(0)
    boxes, scores = rng.uniform(32, 620, (16, 4, 64)), rng.uniform(0.13, 0.88, (16, 4, 64))
    return np.concatenate([boxes, scores], axis=1).astype(np.float32)


def test_scores_that_are_zero_beside_boxes_fail_with_axis_and_remedy(head: Array) -> None:
    got = head.copy()
    got[:, 4:] = 0
    compared = _compared(head, got, "int8")
    assert "slice 4, 5, 6, 7 of axis 1 is constant" in compared.failures[0]
    assert any("--keep-float" in remedy for remedy in compared.remedies)
    last = _compared(head.transpose(0, 2, 1), got.transpose(0, 2, 1), "int8")
    assert "slice 4, 5, 6, 7 of the last axis is constant" in last.failures[0]


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_one_dead_slice_is_seen_along_every_axis(axis: int, precision: Precision) -> None:
    want = np.random.default_rng(1).normal(size=(6, 5, 40, 30))
    small = [slice(None)] * 4
    small[axis] = slice(3, 4)
    want[tuple(small)] *= 1e-4
    want = want.astype(np.float32)
    got = want.copy()
    got[tuple(small)] = 0
    name = "the last axis" if axis == 3 else f"axis {axis}"
    assert f"slice 3 of {name} is constant" in _text(want, got, precision)


def test_a_slice_of_another_size_is_reported_with_its_axis() -> None:
    want = np.random.default_rng(2).normal(size=(4, 6, 50))
    want[:, 2] *= 1e-4
    got = want.copy()
    got[:, 2] *= 1.5
    assert "slice 2 of axis 1 has relative L2 0.5" in _text(want, got, "fp32")


def test_a_slice_that_lost_its_spread_is_reported_with_its_axis(head: Array) -> None:
    got = head.copy()
    got[:, 6] = 0.5 + 0.1 * (got[:, 6] - 0.5)
    assert "slice 6 of axis 1 keeps 10% of its spread" in _text(head, got, "int8")


def test_a_slice_that_is_nearly_constant_in_the_source_may_be_constant_in_int8() -> None:
    want = np.random.default_rng(3).normal(size=(8, 4, 20))
    want[:, 1] = 0.5 + 0.0002 * want[:, 1]
    got = want.copy()
    got[:, 1] = 0.5
    assert _text(want, got, "int8") == ""
    assert "constant" in _text(want, got, "fp32")


def test_a_class_that_is_never_likely_may_be_constant_in_a_map_of_probabilities() -> None:
    want = np.random.default_rng(4).dirichlet([20.0, 20.0, 20.0], size=(4, 6, 7))
    want[..., 2] = 1e-4 * want[..., 2]
    want /= want.sum(axis=-1, keepdims=True)
    want = np.moveaxis(want, -1, 1)
    got = want.copy()
    got[:, 2] = 0
    assert _text(want, got, "int8") == ""


def test_an_output_without_a_batch_axis_has_slices_along_all_of_its_axes() -> None:
    want = np.random.default_rng(5).normal(size=(30, 40))
    got = want.copy()
    got[7] = 0
    assert "slice 7 of axis 0 is constant" in _text(want, got, "int8", batched=False)


def test_no_slice_is_left_out_of_a_large_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MOST_VALUES", 2000)
    want = np.random.default_rng(6).normal(size=(64, 300, 5))
    got = want.copy()
    got[:, 299] = 0
    assert "slice 299 of axis 1 is constant" in _text(want, got, "int8")


@pytest.mark.parametrize("kind", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("other", [-2.13, 1e9, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_places_without_a_number_hold_the_same_kind(kind: float, other: float, precision: Precision) -> None:
    want = np.random.default_rng(7).normal(size=(9, 7, 7)).astype(np.float32)
    want[:, 2, 3:] = kind
    got = want.copy()
    got[4, 2, 5] = other
    same = kind == other or bool(np.isnan(kind) and np.isnan(other))
    compared = _compared(want, got, precision)
    assert (compared.failures == ()) is same
    if not same:
        assert "1 values are" in compared.failures[0]
        assert bool(compared.remedies) is (precision == "int8")


def test_a_row_that_is_nan_in_both_is_no_failure() -> None:
    want = np.random.default_rng(8).normal(size=(9, 7, 7)).astype(np.float32)
    want[:, 6] = np.nan
    assert _text(want, want.copy(), "int8") == ""
