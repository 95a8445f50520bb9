"""Whole numbers have no distance: they are judged by agreement, ties of equal scores aside."""

import numpy as np
import pytest

from ipj_edge.bundles.manifest import OutputParity
from ipj_edge.protocols import Array
from ipj_edge.runtime.parity import ParityCheck, compare
from ipj_edge.values import Precision, TensorSpec

FLOATS: tuple[Precision, ...] = ("fp32", "fp16", "bf16")


def _compared(
    want: dict[str, Array], got: dict[str, Array], precision: Precision, inputs: str = "calibration", **more: float
) -> ParityCheck:
    specs = [
        TensorSpec(name=name, shape=("batch", *value.shape[1:]), dtype=str(value.dtype)) for name, value in want.items()
    ]
    compared = compare(specs, want, got, precision=precision, inputs=inputs, **more)  # type: ignore[arg-type]
    return compared[-1]


def _one(want: Array, got: Array, precision: Precision, inputs: str = "calibration", **more: float) -> ParityCheck:
    return _compared({"y": want}, {"y": got}, precision, inputs, **more)


def _with_wrong(want: Array, count: int) -> Array:
    got = want.copy()
    got.flat[:count] += 1
    return got


@pytest.fixture
def labels() -> Array:
    return np.random.default_rng(0).integers(900, 1000, 200)


@pytest.mark.parametrize("precision", FLOATS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8"])
def test_one_other_label_fails_in_float(labels: Array, precision: Precision, dtype: str) -> None:
    want = (labels % 100).astype(dtype)
    assert _one(want, want, precision).failures == ()
    (failure,) = _one(want, _with_wrong(want, 1), precision, "random").failures
    assert "agreement 99.50%: 1 of 200 whole numbers differ, none may" in failure


def test_large_integers_that_differ_by_one_are_not_equal() -> None:
    want = np.array([2**53, 2**60], np.int64)
    assert _one(want, want + 1, "fp32").failures


def test_booleans_are_bits() -> None:
    want = np.random.default_rng(1).random((10, 4, 5)) < 0.5
    got = want.copy()
    got[0, 0, 0] ^= True
    assert _one(want, got, "fp32").failures
    assert _one(want, got, "int8").failures == ()


def test_int8_needs_97_percent_of_100_samples(labels: Array) -> None:
    passed = _one(labels, _with_wrong(labels, 6), "int8")
    assert passed.failures == ()
    assert (passed.figures.agreement, passed.figures.places) == (pytest.approx(0.97), 200)
    assert passed.figures.relative_l2 is None
    assert "at least 97% must agree" in _one(labels, _with_wrong(labels, 7), "int8").failures[0]


def test_of_fewer_than_100_samples_none_may_differ_in_int8(labels: Array) -> None:
    assert _one(labels[:99], labels[:99], "int8").failures == ()
    assert "fewer than 100 none may" in _one(labels[:99], _with_wrong(labels[:99], 1), "int8").failures[0]


def test_places_of_label_maps_count() -> None:
    want = np.random.default_rng(2).integers(0, 6, (2, 16, 20))
    assert _one(want, _with_wrong(want, 19), "int8").failures == ()
    assert _one(want, _with_wrong(want, 20), "int8").failures


def test_a_label_that_int8_never_gives_fails_though_97_percent_agree() -> None:
    want = np.zeros((8, 100, 100), bool)
    want[:, :10, :15] = True
    assert "answers True at 1200 places" in _one(want, np.zeros_like(want), "int8").failures[0]


def test_whole_numbers_of_int8_are_not_judged_on_drawn_inputs(labels: Array) -> None:
    shown = _one(labels, labels + 1, "int8", "random")
    assert shown.failures == ()
    assert shown.figures.agreement == 0.0


def test_a_loosened_tolerance_is_a_share_of_places(labels: Array) -> None:
    assert _one(labels, _with_wrong(labels, 2), "fp32", tolerance=0.01).failures == ()
    assert _one(labels, _with_wrong(labels, 3), "fp32", tolerance=0.01).failures
    assert _one(labels, _with_wrong(labels, 40), "int8", tolerance=0.2).failures == ()


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_equal_scores_make_a_tie(keep: bool, last: bool) -> None:
    scores = np.random.default_rng(3).normal(size=(20, 7)).astype(np.float32)
    scores[:, 2] = scores[:, 5] = 9
    scores = scores if last else scores.reshape(20, 7, 1, 1)
    want = np.full((20, *((1,) if keep else ()), *scores.shape[2:]), 2)
    given = {"scores": scores, "class": want}
    assert _compared(given, {"scores": scores, "class": want + 3}, "fp32").failures == ()
    assert _compared(given, {"scores": scores, "class": want + 1}, "fp32").failures
    assert _compared(given, {"scores": scores, "class": want + 300}, "fp32").failures


def test_fp16_may_choose_between_scores_that_it_cannot_tell_apart() -> None:
    scores = np.tile(np.array([1.0, 1.0002, 0.5], np.float32), (50, 1))
    want, got = np.full(50, 1), np.full(50, 0)
    halved = scores.astype(np.float16).astype(np.float32)
    assert _compared({"s": scores, "c": want}, {"s": halved, "c": got}, "fp16").failures == ()
    assert _compared({"s": scores, "c": want}, {"s": scores, "c": got}, "fp32").failures


def test_the_class_beside_its_scores_has_to_agree_in_int8() -> None:
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(200, 50)).astype(np.float32)
    noisy = scores + 0.1 * rng.normal(size=scores.shape).astype(np.float32)
    want, got = ({"s": each, "c": each.argmax(1)} for each in (scores, noisy))
    assert "at least 97%" in _compared(want, got, "int8").failures[0]


def _top(scores: Array, k: int) -> dict[str, Array]:
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return {"values": np.take_along_axis(scores, order, 1), "indices": order}


def test_indices_of_the_largest_scores_may_change_their_order_in_int8_while_the_scores_agree() -> None:
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(100, 50)).astype(np.float32)
    noisy = scores + 0.03 * rng.normal(size=scores.shape).astype(np.float32)
    want, got = _top(scores, 5), _top(noisy, 5)
    assert (want["indices"] != got["indices"]).mean() > 0.05
    assert _compared(want, got, "int8").failures == ()
    assert _compared({"all": scores, **want}, {"all": noisy, **got}, "int8").failures == ()
    assert _compared(want, got, "fp32").failures
    strangers = {**got, "indices": (got["indices"] + 1) % 50}
    assert _compared(want, strangers, "int8").failures
    assert _compared({"all": scores, **want}, {"all": noisy, **strangers}, "int8").failures


def test_equal_values_of_a_ranking_may_change_places_and_no_others() -> None:
    scores = np.zeros((4, 9), np.float32)
    scores[:, :4] = [3, 2, 2, 1]
    want = _top(scores, 4)
    swapped = {**want, "indices": want["indices"][:, [0, 2, 1, 3]]}
    assert _compared(want, swapped, "fp32").failures == ()
    wrong = {**want, "indices": want["indices"][:, [1, 0, 2, 3]]}
    assert _compared(want, wrong, "fp32").failures
    foreign = {**want, "indices": want["indices"] + np.array([0, 6, 0, 0])}
    assert _compared(want, foreign, "fp32").failures


def test_figures_of_older_manifests_still_load() -> None:
    old = OutputParity(output="y", inputs="random", samples=4, relative_l2=0.1, cosine=1.0, max_abs=0.1)
    assert (old.agreement, old.places) == (None, None)


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", 0), ("fp16", 19), ("bf16", 156)])
def test_a_few_of_many_places_may_be_ties_that_no_score_shows(precision: Precision, allowed: int) -> None:
    want = np.random.default_rng(6).integers(0, 6, (4, 50, 100))
    assert _one(want, _with_wrong(want, allowed), precision).failures == ()
    assert _one(want, _with_wrong(want, allowed + 1), precision).failures
