import itertools
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from ipj_edge.errors import ConfigError, DataError, PluginError
from ipj_edge.exits import (
    Gate,
    PolicyOrigin,
    StageCost,
    StageCosts,
    Tuned,
    TuneRequest,
    answering_exits,
)
from ipj_edge.exits.proof.certificate import samples_needed, split
from ipj_edge.exits.proof.costs import cost_of_leaving, expected_cost, never_cost, reached
from ipj_edge.exits.proof.losses import deviation, error, harm, inconsistency
from ipj_edge.exits.proof.tuning import tune
from ipj_edge.plugins import EXIT_RULES, load_exit_rule
from ipj_edge.protocols import Array

HERE = PolicyOrigin(data_sha256="d" * 64, files={"stage0.onnx": "a" * 64}, settings={"engine": "onnxruntime"})


def multi_exit(n: int, exits: int = 3, classes: int = 5, seed: int = 0) -> tuple[list[Array], Array]:
    """Logits of exits that know more with depth, on samples of differing difficulty."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, n)
    ease = random.random(n)
    outputs = []
    for k in range(exits):
        logits = random.normal(size=(n, classes))
        logits[np.arange(n), labels] += 10 * ease * (k + 1) / exits + 2.0 * (k + 1)
        outputs.append(logits.astype(np.float32))
    return outputs, labels


def costs_of(exits: int = 3, **fields: Any) -> StageCosts:
    stages = tuple(StageCost(fixed=0.2, per_row=1.0 + 2 * k) for k in range(exits))
    return StageCosts(unit="J", source="measured (rapl, package)", stages=stages, **fields)


def answers(tuned: Tuned, outputs: list[Array], rows: Array) -> tuple[Array, Array]:
    """Run a policy as a runtime does: gate by gate, row by row; return the exits left at and the answering exits."""
    gate = Gate(tuned.policy, load_exit_rule(tuned.policy.rule), "logits")
    left, answered = [], []
    for row in rows:
        seen = [output[row : row + 1] for output in outputs]
        leaving = next((k for k in range(len(seen) - 1) if gate.row_leaves(k, seen[: k + 1])), len(seen) - 1)
        scores = np.stack([gate.scores(k, seen[: k + 1]) for k in range(leaving + 1)], axis=1)
        left.append(leaving)
        answered.append(int(answering_exits(scores)[0, -1]) if tuned.policy.recall else leaving)
    return np.array(left), np.array(answered)


@pytest.mark.parametrize("exits", [2, 3, 5])
def test_tuning_proves_a_policy_that_costs_less_than_never_exiting(exits: int) -> None:
    outputs, labels = multi_exit(3000, exits)
    tuned = tune(outputs, labels, costs_of(exits), TuneRequest(epsilon=0.02), HERE)
    certificate = tuned.certificate
    assert certificate.holds
    assert certificate.method == "exact-binomial"
    assert certificate.loss == "harm"
    assert certificate.n_search == 750
    assert certificate.n_test == 2250
    assert certificate.p_value is not None
    assert certificate.p_value <= 0.05
    assert certificate.errors == round(tuned.expected.risk * 2250)
    assert (certificate.data_sha256, certificate.files, certificate.settings) == (
        HERE.data_sha256, HERE.files, HERE.settings,
    )  # fmt: skip
    assert tuned.expected.cost < 0.8 * tuned.never.cost
    assert tuned.expected.leavers == certificate.leavers
    assert sum(certificate.leavers) == 2250
    assert tuned.expected.accuracy is not None
    assert tuned.never.accuracy is not None
    assert tuned.never.accuracy.value - tuned.expected.accuracy.value <= tuned.expected.risk + 1e-12


@pytest.mark.parametrize("rule", ["max-probability", "entropy", "margin", "patience"])
def test_the_runtimes_gate_does_what_the_certificate_says(rule: str) -> None:
    outputs, labels = multi_exit(2000, 4, seed=3)
    request = TuneRequest(epsilon=0.05, rules=(rule,), search_share=0.25, seed=5)
    tuned = tune(outputs, labels, costs_of(4), request, HERE)
    assert tuned.certificate.holds
    tested = split(labels, 0.25, 5)[1]
    left, answered = answers(tuned, outputs, tested)
    assert tuple(np.bincount(left, minlength=4)) == tuned.certificate.leavers
    predicted = np.stack([output.argmax(axis=1) for output in outputs], axis=1)[tested]
    harmed = harm(predicted, labels[tested])[np.arange(len(tested)), answered]
    assert int(harmed.sum()) == tuned.certificate.errors


def test_recall_is_certified_on_the_answers_it_gives() -> None:
    outputs, labels = multi_exit(1200, 3, seed=4)
    tuned = tune(outputs, labels, costs_of(3), TuneRequest(epsilon=0.05, recall=True, seed=1), HERE)
    assert tuned.certificate.holds
    assert tuned.policy.recall
    tested = split(labels, 0.25, 1)[1]
    left, answered = answers(tuned, outputs, tested)
    assert (answered <= left).all()
    assert (answered < left).any()
    predicted = np.stack([output.argmax(axis=1) for output in outputs], axis=1)[tested]
    right = predicted == labels[tested][:, None]
    rows = np.arange(len(tested))
    assert int((~right[rows, answered] & right[:, -1]).sum()) == tuned.certificate.errors
    assert tuned.expected.accuracy is not None
    assert tuned.expected.accuracy.value == pytest.approx(right[rows, answered].mean())


def test_without_labels_the_last_exit_is_the_measure() -> None:
    outputs, _ = multi_exit(3000)
    tuned = tune(outputs, None, costs_of(), TuneRequest(epsilon=0.02), HERE)
    assert tuned.certificate.loss == "inconsistency"
    assert tuned.certificate.holds
    assert tuned.expected.accuracy is None
    assert tuned.policy.parameters["temperature"][-1] == 1


def test_regression_is_tuned_on_change_and_bounded_in_its_own_unit() -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=(4000, 2))
    noise = random.exponential(size=(4000, 1)) * random.normal(size=(4000, 2))
    outputs = [truth + noise * spread for spread in (0.2, 0.05, 0.0)]
    request = TuneRequest(epsilon=0.05, meaning="other", rules=("change",), deviation_scale=1.0)
    tuned = tune(outputs, None, costs_of(), request, HERE)
    assert tuned.certificate.loss == "deviation"
    assert tuned.certificate.method == "hoeffding-bentkus"
    assert tuned.certificate.errors is None
    assert tuned.certificate.holds
    assert tuned.expected.risk <= 0.05
    assert tuned.policy.thresholds[0] is None  # nothing to compare the first exit with
    assert tuned.policy.thresholds[1] is not None
    assert tuned.policy.thresholds[1] < 0


def test_too_few_samples_say_how_many_are_missing_and_keep_the_full_model() -> None:
    outputs, labels = multi_exit(300)
    tuned = tune(outputs, labels, costs_of(), TuneRequest(epsilon=0.01), HERE)
    certificate = tuned.certificate
    assert not certificate.holds
    assert tuned.policy.never_exits
    assert tuned.expected == tuned.never
    assert certificate.leavers == (0, 0, 225)
    # 299 test samples without an error prove 1 %: 399 in all, three quarters of them tested.
    assert certificate.samples_missing == 99
    assert "takes at least 299 samples for the test" in certificate.reason
    assert "99 more are needed" in certificate.reason
    assert certificate.p_value is None


def test_with_the_missing_samples_there_are_enough_for_the_test() -> None:
    for n in (100, 301, 397, 398):
        outputs, labels = multi_exit(n)
        missing = tune(outputs, labels, costs_of(), TuneRequest(epsilon=0.01), HERE).certificate.samples_missing
        assert missing is not None
        outputs, labels = multi_exit(n + missing)
        assert tune(outputs, labels, costs_of(), TuneRequest(epsilon=0.01), HERE).certificate.n_test >= 299


def hopeless(n: int, right: float) -> tuple[list[Array], Array]:
    """An early exit that is wrong now and then, just as sure of itself as when it is right."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, n)
    early = np.where(random.random(n) < right, labels, 1 - labels)
    return [np.eye(2)[early] * 8.0, np.eye(2)[labels] * 8.0], labels


def test_a_risk_that_is_too_near_asks_for_the_samples_that_would_prove_it() -> None:
    outputs, labels = hopeless(1000, right=0.955)
    tuned = tune(outputs, labels, costs_of(2), TuneRequest(epsilon=0.05, temperature=False), HERE)
    certificate = tuned.certificate
    assert tuned.policy.never_exits
    assert "is not proven: the first policy that exits already has" in certificate.reason
    tested = split(labels, 0.25, 0)[1]
    seen = float(
        (outputs[0].argmax(axis=1) != labels)[tested].mean()
    )  # that policy lets all leave: one level of scores
    needed = samples_needed(0.05, 0.05, seen)
    assert needed is not None
    assert certificate.samples_missing == math.ceil(needed / 0.75) - 1000 > 500


def test_a_risk_above_the_limit_is_not_a_matter_of_samples() -> None:
    outputs, labels = hopeless(2000, right=0.9)
    tuned = tune(outputs, labels, costs_of(2), TuneRequest(epsilon=0.01, temperature=False), HERE)
    assert tuned.policy.never_exits
    assert tuned.certificate.samples_missing is None
    assert "no thresholds save anything with harm at most 1 %" in tuned.certificate.reason


def test_what_is_not_certified_is_only_given_when_asked_for_and_says_so() -> None:
    outputs, labels = multi_exit(300)
    tuned = tune(outputs, labels, costs_of(), TuneRequest(epsilon=0.01, certify=False), HERE)
    assert not tuned.policy.never_exits
    assert not tuned.certificate.holds
    assert tuned.certificate.reason == "no certificate was asked for"
    assert tuned.certificate.risk is not None  # seen on samples the thresholds were not searched on


def test_exits_that_save_nothing_are_not_used() -> None:
    outputs, labels = multi_exit(2000)
    cheap = costs_of(unsplit=StageCost(fixed=0.0, per_row=0.5))
    tuned = tune(outputs, labels, cheap, TuneRequest(epsilon=0.02), HERE)
    assert tuned.policy.never_exits
    assert tuned.never.cost == 0.5
    assert "no thresholds save anything" in tuned.certificate.reason


def test_the_rule_that_promises_the_least_cost_is_chosen_on_the_samples_of_the_search() -> None:
    outputs, labels = multi_exit(4000, seed=2)
    request = TuneRequest(epsilon=0.02, rules=("patience", "entropy"))
    both = tune(outputs, labels, costs_of(), request, HERE)
    alone = tune(outputs, labels, costs_of(), msgspec.structs.replace(request, rules=("entropy",)), HERE)
    assert both.policy == alone.policy


def test_the_same_seed_gives_the_same_policy_and_another_split_another() -> None:
    outputs, labels = multi_exit(2000)
    request = TuneRequest(epsilon=0.02)
    first, second = (tune(outputs, labels, costs_of(), request, HERE) for _ in range(2))
    assert first == second
    other = tune(outputs, labels, costs_of(), msgspec.structs.replace(request, seed=1), HERE)
    assert other.policy != first.policy


def test_the_test_samples_decide_nothing_but_how_far_the_walk_goes() -> None:
    """The path is chosen before: with other labels on the test samples it is the same, only cut elsewhere."""
    outputs, _ = multi_exit(3000, classes=2)
    # No labels, so that the split, by the last exit's answers, does not move either.
    tested = split(outputs[-1].argmax(axis=1), 0.25, 0)[1]
    spoilt = [output.copy() for output in outputs]
    spoilt[0][tested[::10]] = spoilt[0][tested[::10], ::-1]  # the first exit is now often wrong there
    request = TuneRequest(epsilon=0.03)
    before, after = (tune(o, None, costs_of(), request, HERE) for o in (outputs, spoilt))
    assert before.policy.parameters == after.policy.parameters

    def limits(tuned: Tuned) -> list[float]:
        return [math.inf if t is None else t for t in tuned.policy.thresholds]

    assert all(a >= b for a, b in zip(limits(after), limits(before), strict=True))
    assert limits(after) != limits(before)


def test_the_front_trades_accuracy_for_cost() -> None:
    outputs, labels = multi_exit(3000)
    tuned = tune(outputs, labels, costs_of(), TuneRequest(epsilon=0.02), HERE)
    costs = [point.expected.cost for point in tuned.front]
    assert 3 < len(costs) <= 32
    assert min(costs) == pytest.approx(costs[0], rel=0.05)
    accuracies = [point.expected.accuracy.value for point in tuned.front if point.expected.accuracy]
    assert accuracies[-1] > accuracies[0]
    assert costs[-1] > costs[0]


def test_a_large_batch_pays_fixed_costs_whenever_one_of_its_rows_goes_on() -> None:
    costs = StageCosts(
        unit="J", source="x", stages=(StageCost(fixed=1.0, per_row=1.0), StageCost(fixed=10.0, per_row=1.0))
    )
    leavers = np.array([90, 10])
    assert expected_cost(costs, leavers, 1) == pytest.approx(2 + 0.1 * 11)
    assert expected_cost(costs, leavers, 4) == pytest.approx(1 / 4 + 1 + 10 * (1 - 0.9**4) / 4 + 0.1)
    assert never_cost(costs, 4) == pytest.approx(1 / 4 + 1 + 10 / 4 + 1)
    assert expected_cost(costs, np.array([0, 100]), 4) == pytest.approx(never_cost(costs, 4))
    random = np.random.default_rng(0)
    drawn = random.random((200_000, 4)) < 0.1
    simulated = (4 * 1 + 1 + drawn.sum(axis=1) + 10 * drawn.any(axis=1)).mean() / 4
    assert expected_cost(costs, leavers, 4) == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_the_cost_of_leaving_adds_up_to_the_expected_cost(batch: int) -> None:
    costs, leavers = costs_of(3), np.array([50, 30, 20])
    leaving = cost_of_leaving(costs, reached(leavers), batch)
    assert leaving @ leavers / 100 == pytest.approx(expected_cost(costs, leavers, batch))
    assert (np.diff(leaving) > 0).all()


def test_early_exit_saves_less_of_the_fixed_cost_in_a_batch() -> None:
    outputs, labels = multi_exit(3000)
    heavy = StageCosts(unit="J", source="x", stages=tuple(StageCost(fixed=5.0, per_row=1.0) for _ in range(3)))
    saved = []
    for batch in (1, 32):
        tuned = tune(outputs, labels, heavy, TuneRequest(epsilon=0.02, batch=batch), HERE)
        saved.append(1 - tuned.expected.cost / tuned.never.cost)
    assert saved[0] > saved[1] > 0


def test_losses_say_what_they_are_of() -> None:
    predicted = np.array([[1, 0, 0], [1, 1, 1], [2, 2, 0], [0, 1, 2]])
    labels = np.array([0, 1, 2, 2])
    assert harm(predicted, labels).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0], [1, 1, 0]]
    assert inconsistency(predicted).tolist() == [[1, 0, 0], [0, 0, 0], [1, 1, 0], [1, 1, 0]]
    assert error(predicted, labels).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1], [1, 1, 0]]
    right = predicted == labels[:, None]
    drop = right[:, -1:].mean() - right.mean(axis=0)
    assert (harm(predicted, labels).mean(axis=0) >= drop).all()
    outputs = [np.array([[0.0, 1.0], [math.nan, 0.0]]), np.array([[0.5, 1.0], [0.0, 0.0]])]
    assert deviation(outputs, 2.0).tolist() == [[0.25, 0.0], [1.0, 0.0]]


def test_a_sample_without_a_number_at_an_early_exit_goes_on() -> None:
    outputs, labels = multi_exit(2000)
    outputs[0][::2] = math.nan
    tuned = tune(outputs, labels, costs_of(), TuneRequest(epsilon=0.02), HERE)
    assert tuned.certificate.holds
    assert 0 < tuned.certificate.leavers[0] <= 750


def test_a_last_exit_without_a_number_is_an_error_that_names_the_samples() -> None:
    outputs, labels = multi_exit(100)
    outputs[-1][[7, 42], 1] = math.nan
    with pytest.raises(DataError, match=r"answers NaN for 2 of 100 samples \(7, 42\)"):
        tune(outputs, labels, costs_of(), TuneRequest(epsilon=0.1), HERE)


def spoil(**changes: Any) -> Callable[[], object]:
    outputs, labels = multi_exit(100)
    given = {"outputs": outputs, "labels": labels, "costs": costs_of(), "request": TuneRequest(epsilon=0.1)} | changes
    return lambda: tune(given["outputs"], given["labels"], given["costs"], given["request"], HERE)


GOOD, LABELS = multi_exit(100)


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (spoil(outputs=GOOD[:1]), ConfigError, "one exit: there is nothing to tune"),
        (spoil(outputs=[GOOD[0][:, :4], *GOOD[1:]]), ConfigError, r"different numbers of classes \(4, 5, 5\)"),
        (spoil(outputs=[GOOD[0][:50], *GOOD[1:]]), DataError, "different numbers of samples"),
        (spoil(outputs=[o[:12] for o in GOOD]), DataError, "8 are missing for a search at all"),
        (spoil(labels=LABELS[:99]), DataError, "expected 100 labels"),
        (spoil(labels=LABELS + 1), DataError, "labels run from 1 to 5, the model knows classes 0..4"),
        (spoil(labels=LABELS.astype(float)), DataError, "expected integer labels, got float64"),
        (spoil(labels=None, request=TuneRequest(epsilon=0.1, loss="harm")), DataError, "needs labels"),
        (spoil(request=TuneRequest(epsilon=0.0)), ConfigError, "epsilon must be above 0 and below 1"),
        (spoil(request=TuneRequest(epsilon=0.1, delta=1.0)), ConfigError, "delta must be above 0"),
        (spoil(request=TuneRequest(epsilon=0.1, batch=0)), ConfigError, "batch must be at least 1"),
        (spoil(request=TuneRequest(epsilon=0.1, rules=())), ConfigError, "no exit rule was named"),
        (spoil(request=TuneRequest(epsilon=0.1, loss="deviation")), ConfigError, "needs the distance"),
        (spoil(request=TuneRequest(epsilon=0.1, meaning="other", deviation_scale=1.0)), ConfigError, "judges logits"),
        (spoil(costs=costs_of(2)), ConfigError, "2 stage costs for a model with 3 exits"),
        (
            spoil(costs=StageCosts(unit="J", source="", stages=(StageCost(fixed=-1.0, per_row=2.0),) * 3)),
            ConfigError,
            "stage 0 costs -1 J and 2 J a row",
        ),
    ],
)
def test_bad_input_is_one_clear_line(call: Callable[[], object], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        call()


@pytest.mark.parametrize(
    ("returns", "says"),
    [("outputs[-1]", "scores of shape"), ("7.0 + outputs[-1][:, 0] * 0", "outside the range 0..1 that it states")],
)
def test_an_outsiders_rule_is_held_to_its_promises(
    returns: str, says: str, install_plugin: Callable[[str, str, str], None]
) -> None:
    install_plugin(
        EXIT_RULES,
        f"odd = odd_rule_{len(returns)}:Odd",
        f"""
        class Odd:
            name, meanings, looks_back, parameters = "odd", ("logits",), 0, ()

            def bounds(self, exits):
                return 0.0, 1.0

            def bind(self, exit_index, meaning, parameters):
                return lambda outputs: {returns}
        """,
    )
    with pytest.raises(PluginError, match=says):
        spoil(request=TuneRequest(epsilon=0.1, rules=("odd",)))()


def test_all_rules_and_losses_go_together() -> None:
    outputs, labels = multi_exit(600)
    for rule, loss in itertools.product(("max-probability", "patience", "change"), ("harm", "inconsistency", "error")):
        request = TuneRequest(epsilon=0.2, rules=(rule,), loss=loss)  # type: ignore[arg-type]
        tuned = tune(outputs, labels, costs_of(), request, HERE)
        assert tuned.certificate.loss == loss
        assert tuned.certificate.holds, (rule, loss, tuned.certificate.reason)
