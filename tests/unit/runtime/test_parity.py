import numpy as np
import pytest

from ipj_edge.protocols import Array
from ipj_edge.runtime.parity import Allowances, compare
from ipj_edge.values import Meaning, Precision, TensorSpec


def _failures(
    want: Array,
    got: Array,
    precision: Precision,
    *,
    meaning: Meaning = "other",
    inputs: str = "calibration",
    **more: bool,
) -> str:
    spec = TensorSpec(name="y", shape=("batch", *want.shape[1:]), dtype="float32", meaning=meaning)
    compared = compare((spec,), {"y": want}, {"y": got}, precision=precision, inputs=inputs, **more)  # type: ignore[arg-type]
    return "; ".join(failure for comparison in compared for failure in comparison.failures)


@pytest.fixture
def scores() -> Array:
    return np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)


def test_equal_answers_pass_at_every_precision(scores: Array) -> None:
    for precision in ("fp32", "fp16", "bf16", "int8"):
        assert _failures(scores, scores, precision, meaning="logits") == ""  # type: ignore[arg-type]


def test_a_dead_slice_fails_although_the_cosine_is_nearly_one() -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(256, 1)).astype(np.float32)
    want = np.concatenate([640 * x, x], axis=1)
    got = want.copy()
    got[:, 1] = 0
    cosine = float(np.vdot(want, got) / np.linalg.norm(want) / np.linalg.norm(got))
    assert cosine > 0.99999
    assert "slice 1 of the last axis is constant" in _failures(want, got, "int8")


def test_a_slice_that_lost_most_of_its_spread_fails_at_int8(scores: Array) -> None:
    got = scores.copy()
    got[:, 3] = 0.2 * got[:, 3]
    assert "slice 3 of the last axis keeps 20% of its spread" in _failures(scores, got, "int8", judge_values=True)


def test_swapped_slices_fail_at_fp32(scores: Array) -> None:
    assert "relative L2" in _failures(scores, scores[:, ::-1], "fp32")


def test_one_wrong_slice_fails_at_fp32_although_the_whole_is_within_tolerance() -> None:
    random = np.random.default_rng(2)
    want = random.normal(size=(64, 4)) * np.array([1e5, 1e5, 1e5, 1.0])
    got = want.copy()
    got[:, 3] *= 1.5
    message = _failures(want, got, "fp32")
    assert "slice 3" in message
    assert "at most 0.001" in message


def test_noise_below_a_millionth_of_the_range_does_not_fail_a_tiny_slice() -> None:
    want = np.random.default_rng(3).normal(size=(64, 2)) * np.array([1e6, 1e-3])
    got = want + 1e-3 * np.array([0.0, 1.0])
    assert _failures(want, got, "fp32") == ""


def test_nan_beside_a_value_that_is_none_in_the_source_either_fails(scores: Array) -> None:
    scores[3, 4] = -np.inf
    got = scores.copy()
    got[0, 0] = np.nan
    assert "NaN or infinity" in _failures(scores, got, "fp32")
    assert _failures(scores, scores, "fp32") == ""


def test_answers_of_another_dtype_fail(scores: Array) -> None:
    assert "float64, the source gives float32" in _failures(scores, scores.astype(np.float64), "fp32")


def test_nan_fails_where_the_source_is_finite(scores: Array) -> None:
    got = scores.copy()
    got[0, 0] = np.nan
    assert "NaN or infinity" in _failures(scores, got, "int8")


def test_other_shapes_and_names_fail(scores: Array) -> None:
    assert "shape (64, 9)" in _failures(scores, scores[:, :9], "fp32")
    spec = TensorSpec(name="y", shape=("batch", 10), dtype="float32")
    (comparison,) = compare((spec,), {"y": scores}, {"z": scores}, precision="fp32", inputs="random")
    assert "outputs differ" in comparison.failures[0]


def test_top1_must_agree_on_calibration_data_when_outputs_are_logits() -> None:
    want = np.tile(np.array([[1.0, 0.99]]), (100, 1)) + np.random.default_rng(4).normal(size=(100, 2)) * 1e-3
    got = want + np.array([[0.0, 0.02]])
    assert "top-1 agrees on" in _failures(want, got, "int8", meaning="logits")
    assert _failures(want, got, "int8", meaning="other") == ""


def test_an_early_exit_of_int8_only_has_to_point_the_same_way(scores: Array) -> None:
    noise = np.random.default_rng(6).normal(size=scores.shape).astype(np.float32)
    spec = TensorSpec(name="exit_1", shape=("batch", 10), dtype="float32", meaning="logits")
    allowances = Allowances(early_exits=frozenset({"exit_1"}))

    def compared(share: float, precision: Precision) -> tuple[tuple[str, ...], tuple[str, ...]]:
        got = {"exit_1": scores + share * noise}
        (one,) = compare(
            (spec,), {"exit_1": scores}, got, precision=precision, inputs="calibration",
            allowances=allowances if precision == "int8" else None,
        )  # fmt: skip
        return one.failures, one.excused

    failures, excused = compared(0.3, "int8")
    assert failures == ()
    assert any("relative L2" in line for line in excused)  # what it did not keep is told
    assert compared(0.01, "int8") == ((), ())
    assert compared(1.0, "int8")[0]  # the cosine is 0.7: something else answers
    assert compared(0.01, "fp32")[0]


def test_a_class_that_is_never_likely_may_be_constant_in_int8_probabilities() -> None:
    want = np.random.default_rng(5).dirichlet([20.0, 20.0, 0.01], size=200)
    want[:, 2] = np.minimum(want[:, 2], 1e-3)
    got = want.copy()
    got[:, 2] = 0.0
    assert _failures(want, got, "int8", meaning="probabilities") == ""
    assert "constant" in _failures(want, got, "int8", meaning="logits")


def test_values_are_not_judged_outside_the_calibrated_range_but_numbers_must_be_numbers(scores: Array) -> None:
    assert _failures(scores, 2 * scores, "int8", judge_values=False) == ""
    assert "NaN" in _failures(scores, np.full_like(scores, np.nan), "int8", judge_values=False)


def test_a_loosened_tolerance_is_used(scores: Array) -> None:
    spec = TensorSpec(name="y", shape=("batch", 10), dtype="float32")
    noisy = {"y": scores * 1.01}
    for tolerance, passes in ((None, False), (0.02, True)):
        (comparison,) = compare((spec,), {"y": scores}, noisy, precision="fp32", inputs="random", tolerance=tolerance)
        assert (comparison.failures == ()) is passes
