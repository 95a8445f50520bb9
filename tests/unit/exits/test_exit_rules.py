import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ipj_edge.errors import ConfigError, DataError, PluginNotFoundError
from ipj_edge.exits import Gate, answering_exits, make_policy
from ipj_edge.exits.proof.temperature import fit_temperature
from ipj_edge.plugins import EXIT_RULES, load_exit_rule, names
from ipj_edge.protocols import Array
from ipj_edge.values import Meaning

ALL = ("change", "entropy", "margin", "max-probability", "patience")
ON_CLASSES = ("entropy", "margin", "max-probability")


def gate(
    name: str, thresholds: list[float | None], meaning: Meaning = "logits", temperature: list[float] | None = None
) -> Gate:
    rule = load_exit_rule(name)
    parameters = {"temperature": temperature} if temperature else None
    return Gate(make_policy(rule, thresholds, [meaning] * (len(thresholds) + 1), parameters=parameters), rule, meaning)


def scores(name: str, *outputs: Array, meaning: Meaning = "logits", temperature: float | None = None) -> Array:
    exits = max(2, len(outputs))
    temperatures = [temperature] * exits if temperature else None
    return gate(name, [None] * (exits - 1), meaning, temperatures).scores(len(outputs) - 1, outputs)


def random_logits(*shape: int, seed: int = 0, scale: float = 4.0) -> Array:
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def test_all_rules_are_registered_as_an_outsiders_would_be() -> None:
    assert names(EXIT_RULES) == ALL
    for name in ALL:
        assert load_exit_rule(name).name == name
    with pytest.raises(PluginNotFoundError, match="unknown exit rule 'luck'; installed: change, entropy"):
        load_exit_rule("luck")


@pytest.mark.parametrize("temperature", [None, 0.4, 2.5])
def test_rules_on_classes_are_what_scipy_says(temperature: float | None) -> None:
    logits = random_logits(200, 7)
    p = scipy.special.softmax(logits.astype(np.float64) / (temperature or 1), axis=1)
    ordered = np.sort(p, axis=1)
    expected = {
        "max-probability": p.max(axis=1),
        "margin": ordered[:, -1] - ordered[:, -2],
        "entropy": 1 - scipy.stats.entropy(p, axis=1) / math.log(7),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(scores(name, logits, temperature=temperature), values, rtol=1e-12, atol=1e-13)


def test_probabilities_and_logits_of_the_same_answer_score_alike() -> None:
    logits = random_logits(50, 5)
    p = scipy.special.softmax(logits.astype(np.float64), axis=1)
    for name in ON_CLASSES:
        expected = scores(name, logits, temperature=1.7)
        np.testing.assert_allclose(scores(name, p, meaning="probabilities", temperature=1.7), expected, rtol=1e-9)


def test_a_probability_of_zero_is_no_trouble() -> None:
    p = np.array([[1, 0, 0], [0.5, 0.5, 0]], dtype=np.float32)
    assert scores("max-probability", p, meaning="probabilities").tolist() == [1, 0.5]
    assert scores("margin", p, meaning="probabilities").tolist() == [1, 0]
    assert scores("entropy", p, meaning="probabilities") == pytest.approx([1, 1 - math.log(2) / math.log(3)])


def test_patience_counts_equal_predictions_in_a_row() -> None:
    def one_hot(*classes: int) -> Array:
        return np.eye(3, dtype=np.float32)[list(classes)]

    outputs = [one_hot(0, 0, 1), one_hot(0, 1, 2), one_hot(0, 1, 1), one_hot(0, 1, 1)]
    assert scores("patience", *outputs[:1]).tolist() == [1, 1, 1]
    assert scores("patience", *outputs[:2]).tolist() == [2, 1, 1]
    assert scores("patience", *outputs).tolist() == [4, 3, 2]


def test_change_is_the_largest_move_of_any_value_in_the_outputs_unit() -> None:
    before = np.array([[1.0, 2.0], [0.0, 0.0]], dtype=np.float32)
    after = np.array([[1.5, 2.25], [0.0, 0.0]], dtype=np.float32)
    assert scores("change", before, after, meaning="other").tolist() == [-0.5, 0]
    assert np.isneginf(scores("change", before, meaning="other")).all()  # nothing to compare the first exit with
    moved = scores("change", np.full((1, 1), 8.0), np.full((1, 1), 12.0))
    assert -0.001 < moved[0] < 0  # as logits of labels, 8 and 12 are the same answer


def test_change_takes_outputs_of_any_rank() -> None:
    maps = [random_logits(4, 3, 5, 2, seed=seed) for seed in (0, 1)]
    expected = -np.abs(maps[0] - maps[1]).reshape(4, -1).max(axis=1)
    np.testing.assert_allclose(scores("change", *maps, meaning="other"), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_sample_whose_outputs_are_no_numbers_never_leaves(name: str, bad: float) -> None:
    outputs = [np.zeros((3, 4), dtype=np.float32) for _ in range(2)]
    for output in outputs:
        output[:, 1] = 50.0
    outputs[1][1, 2] = bad
    lowest = {"patience": 1.0, "change": -1e9}.get(name, 0.0)
    decide = gate(name, [lowest, lowest])
    expected = [True, False, True]
    if name == "patience" and math.isinf(bad):
        expected = [True, True, True]  # an infinite logit is a prediction all the same
    if name == "change" and math.isinf(bad):
        expected = [True, True, True]  # of a label that is certain
    assert decide.leaves(1, outputs).tolist() == expected
    assert [decide.row_leaves(1, [o[i : i + 1] for o in outputs]) for i in range(3)] == expected


def test_all_infinite_logits_never_leave() -> None:
    rows = np.array([[-math.inf] * 3, [math.inf] * 3], dtype=np.float32)
    for name in ON_CLASSES:
        assert np.isneginf(scores(name, rows)).all()


def test_a_masked_class_of_minus_infinity_counts_for_nothing() -> None:
    masked = np.array([[2.0, 1.0, -math.inf]], dtype=np.float32)
    assert scores("max-probability", masked) == pytest.approx(scores("max-probability", masked[:, :2]))
    assert np.isfinite(scores("entropy", masked)).all()


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(ALL),
    outputs=hnp.arrays(
        np.float32,
        st.tuples(st.just(3), st.integers(1, 9), st.integers(2, 45)),
        elements=st.one_of(
            st.floats(-60, 60, width=32), st.sampled_from([0.0, 0.078125, math.nan, math.inf, -math.inf])
        ),
    ),
    temperature=st.sampled_from([None, 0.7, 3.0]),
    data=st.data(),
)
def test_one_row_alone_decides_as_it_does_in_any_batch(
    name: str, outputs: Array, temperature: float | None, data: st.DataObject
) -> None:
    temperatures = [temperature] * 3 if temperature and name in ON_CLASSES else None
    found = gate(name, [None, None], temperature=temperatures).scores(1, list(outputs[:2]))
    finite = found[np.isfinite(found)]
    # The hardest thresholds: exactly the scores that came out.
    threshold = data.draw(st.sampled_from(sorted(set(finite.tolist())))) if finite.size else None
    decide = gate(name, [None, threshold], temperature=temperatures)
    together = decide.leaves(1, list(outputs[:2]))
    if threshold is not None:
        np.testing.assert_array_equal(together, found >= threshold)
    order = data.draw(st.permutations(range(outputs.shape[1])))
    shuffled = [np.ascontiguousarray(output[order]) for output in outputs[:2]]
    assert decide.leaves(1, shuffled).tolist() == together[order].tolist()
    rows = [[output[i : i + 1] for output in outputs[:2]] for i in range(outputs.shape[1])]
    assert [decide.row_leaves(1, row) for row in rows] == together.tolist()
    assert [bool(decide.leaves(1, row)[0]) for row in rows] == together.tolist()


@pytest.mark.parametrize("name", ON_CLASSES)
def test_a_strided_batch_scores_bit_for_bit_like_a_plain_one(name: str) -> None:
    plain = random_logits(64, 33)
    for view in (np.asfortranarray(plain), np.repeat(plain, 2, axis=1)[:, ::2], plain.astype(np.float64)):
        assert scores(name, view).tobytes() == scores(name, plain).tobytes()


@pytest.mark.parametrize("name", ON_CLASSES)
def test_scoring_leaves_the_outputs_alone(name: str) -> None:
    for output in (random_logits(4, 6), random_logits(4, 6).astype(np.float64)):
        kept = output.copy()
        scores(name, output)
        np.testing.assert_array_equal(output, kept)


def test_equal_logits_of_an_int8_engine_score_equal() -> None:
    grid = np.random.default_rng(0).integers(-3, 4, (400, 4)) * np.float32(0.0784)
    found = scores("max-probability", grid)
    _, same = np.unique(np.sort(grid, axis=1), axis=0, return_inverse=True)
    for group in np.unique(same):
        assert np.ptp(found[same == group]) < 1e-15  # the same values in another order of classes


def test_an_exit_that_is_closed_lets_nothing_leave_whatever_the_score() -> None:
    decide = gate("max-probability", [None, 0.5])
    certain = np.array([[100.0, 0.0]] * 3, dtype=np.float32)
    assert decide.active == (False, True)
    assert not decide.leaves(0, [certain]).any()
    assert not decide.row_leaves(0, [certain[:1]])
    assert decide.leaves(1, [certain, certain]).all()


def test_a_rule_on_classes_refuses_other_outputs() -> None:
    for shape in ((3, 1), (3,), (3, 2, 2)):
        with pytest.raises(ConfigError, match="at least 2 classes: use the rule 'change'"):
            scores("max-probability", np.zeros(shape))


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_must_be_positive(temperature: float) -> None:
    with pytest.raises(ConfigError, match="temperature must be above 0"):
        gate("entropy", [0.5], temperature=[1.0, temperature])


def test_recall_answers_with_the_surest_exit_so_far_and_the_deepest_of_equals() -> None:
    found = np.array([[0.9, 0.5, 0.95], [0.4, 0.4, 0.3], [-math.inf, -math.inf, -math.inf]])
    assert answering_exits(found).tolist() == [[0, 0, 2], [0, 1, 1], [0, 1, 2]]


def test_an_outsiders_rule_decides_like_ours(install_plugin: Callable[[str, str, str], None]) -> None:
    install_plugin(
        EXIT_RULES,
        "largest-logit = outside_rule:Largest",
        """
        import math

        class Largest:
            name, meanings, looks_back, parameters = "largest-logit", ("logits",), 0, ()

            def bounds(self, exits):
                return -math.inf, math.inf

            def bind(self, exit_index, meaning, parameters):
                return lambda outputs: outputs[-1].max(axis=1).astype("float64")
        """,
    )
    decide = gate("largest-logit", [3.0])
    rows = np.array([[1, 3], [2, 0]], dtype=np.float32)
    assert decide.leaves(0, [rows]).tolist() == [True, False]
    assert [decide.row_leaves(0, [rows[:1]]), decide.row_leaves(0, [rows[1:]])] == [True, False]


def test_a_temperature_that_was_applied_is_found_again() -> None:
    random = np.random.default_rng(3)
    logits = 3 * random.normal(size=(20_000, 6))
    labels = np.array([random.choice(6, p=p) for p in scipy.special.softmax(logits, axis=1)])
    for factor in (0.5, 1.0, 3.0):
        found = fit_temperature((factor * logits).astype(np.float32), labels, "logits")
        assert found == pytest.approx(factor, rel=0.03)


def test_no_other_temperature_has_a_better_likelihood() -> None:
    logits = random_logits(500, 4)
    labels = np.where(np.arange(500) % 3, logits.argmax(axis=1), np.arange(500) % 4)

    def likelihood(temperature: float) -> float:
        p = scipy.special.softmax(logits.astype(np.float64) / temperature, axis=1)
        smooth = np.full_like(p, 1 / 501 / 4)
        smooth[np.arange(500), labels] += 500 / 501
        return float((smooth * np.log(p)).sum())

    best = fit_temperature(logits, labels, "logits")
    assert likelihood(best) >= max(likelihood(best * factor) for factor in (0.9, 0.99, 1.01, 1.1))


def test_an_exit_that_is_always_right_keeps_a_temperature_that_tells_samples_apart() -> None:
    labels = np.arange(300) % 3
    logits = np.eye(3)[labels] * np.linspace(8, 30, 300)[:, None]
    temperature = fit_temperature(logits, labels, "logits")
    found = scores("max-probability", logits, temperature=temperature)
    assert len(np.unique(found)) == 300


def test_samples_without_numbers_do_not_spoil_a_temperature() -> None:
    logits = random_logits(200, 4)
    labels = logits.argmax(axis=1)
    labels[:40] = 0
    spoilt = np.concatenate([logits, np.full((3, 4), math.nan, dtype=np.float32)])
    assert fit_temperature(spoilt, np.append(labels, [0, 0, 0]), "logits") == fit_temperature(logits, labels, "logits")
    with pytest.raises(DataError, match="no sample has finite outputs"):
        fit_temperature(spoilt[200:], np.zeros(3, dtype=int), "logits")
