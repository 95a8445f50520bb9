"""Metrics against scikit-learn, fed in uneven batches."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as theirs

from ipj_edge.errors import ConfigError, DataError
from ipj_edge.metrics import Batch, make_metric, top1_correct


def _score(name, outputs, labels, *, meaning="logits", inputs=None, parts=3):
    metric = make_metric(name)
    for rows in np.array_split(np.arange(len(labels)), parts):
        fed = {} if inputs is None else {"x": inputs[rows]}
        metric.add(Batch({"y": outputs[rows]}, labels[rows], fed, {"y": meaning}))
    return metric.score()


def _data(n=500, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes)).astype(np.float32)
    logits[np.arange(n), labels] += 1.0
    return logits, labels


def _probabilities(logits):
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k_agrees_with_scikit_learn_and_has_a_wilson_interval(k):
    logits, labels = _data()
    score = _score(f"top-{k}", logits, labels)
    assert score.value == pytest.approx(theirs.top_k_accuracy_score(labels, logits, k=k))
    assert score.low < score.value < score.high
    assert (score.interval, score.is_rate, score.n) == ("wilson", True, 500)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_of_equal_scores_the_first_count_so_that_top_1_is_argmax(seed):
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(0, 3, (40, 4)).astype(np.float32), rng.integers(0, 4, 40)
    assert _score("top-1", scores, labels).value == pytest.approx((scores.argmax(axis=1) == labels).mean())
    assert _score("top-4", scores, labels).value == 1.0


def test_a_score_that_is_no_number_is_never_correct():
    scores = np.full((4, 3), np.nan, np.float32)
    assert _score("top-3", scores, np.array([0, 1, 2, 0])).value == 0.0


def test_f1_agrees_with_scikit_learn():
    logits, labels = _data()
    score = _score("f1", logits, labels)
    assert score.value == pytest.approx(theirs.f1_score(labels, logits.argmax(axis=1), average="macro"))
    assert score.low < score.value < score.high
    assert score.interval == "bootstrap"
    two, sides = _data(classes=2)
    assert _score("f1-binary", two, sides).value == pytest.approx(theirs.f1_score(sides, two.argmax(axis=1)))
    with pytest.raises(DataError, match="two classes"):
        _score("f1-binary", logits, labels)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_auc_agrees_with_scikit_learn_with_ties_too(seed):
    rng = np.random.default_rng(seed)
    labels = np.r_[0, 1, rng.integers(0, 2, 60)]
    scores = np.stack([np.zeros(62), rng.integers(0, 8, 62)], axis=1).astype(np.float32)
    score = _score("auc", scores, labels)
    assert score.value == pytest.approx(theirs.roc_auc_score(labels, scores[:, 1]))
    assert 0 <= score.low <= score.value <= score.high <= 1


def test_auc_of_many_classes_is_one_against_the_rest():
    logits, labels = _data()
    wanted = theirs.roc_auc_score(labels, _probabilities(logits), multi_class="ovr", average="macro")
    assert _score("auc", logits, labels).value == pytest.approx(wanted, abs=1e-6)


def test_auc_without_both_classes_is_a_reason():
    logits, _ = _data(classes=2)
    score = _score("auc", logits, np.ones(500, int))
    assert score.value is None
    assert "one class only" in score.reason


def test_an_autoencoders_error_ranks_the_abnormal():
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(200, 8)).astype(np.float32)
    labels = rng.integers(0, 2, 200)
    outputs = inputs + (0.1 + 0.2 * labels[:, None] * rng.random((200, 1))).astype(np.float32)
    error = ((outputs - inputs) ** 2).mean(axis=1)
    score = _score("reconstruction-auc", outputs, labels, meaning="other", inputs=inputs)
    assert score.value == pytest.approx(theirs.roc_auc_score(labels, error), abs=1e-3)


def test_mean_squared_error_agrees_with_scikit_learn():
    rng = np.random.default_rng(2)
    wanted = rng.normal(size=(300, 4))
    got = (wanted + rng.normal(size=wanted.shape) / 3).astype(np.float32)
    score = _score("mse", got, wanted, meaning="other")
    assert score.value == pytest.approx(theirs.mean_squared_error(wanted, got), rel=1e-6)
    assert score.low < score.value < score.high
    assert not score.higher_is_better
    assert not score.is_rate
    single = _score("mse", got[:, :1], wanted[:, 0], meaning="other")
    assert single.value == pytest.approx(theirs.mean_squared_error(wanted[:, 0], got[:, 0]), rel=1e-6)


@pytest.mark.parametrize("meaning", ["logits", "probabilities"])
def test_perplexity_is_exp_of_scikit_learns_log_loss(meaning):
    logits, labels = _data()
    probabilities = _probabilities(logits)
    answers = logits if meaning == "logits" else probabilities
    score = _score("perplexity", answers, labels, meaning=meaning)
    assert score.value == pytest.approx(np.exp(theirs.log_loss(labels, probabilities)), rel=1e-5)
    assert score.low < score.value < score.high


def test_perplexity_over_positions_leaves_padding_out():
    rng = np.random.default_rng(3)
    logits, labels = rng.normal(size=(20, 7, 5)), rng.integers(0, 5, (20, 7))
    padded = labels.copy()
    padded[:, 5:] = -100
    flat = _score("perplexity", logits[:, :5].reshape(-1, 5), labels[:, :5].reshape(-1))
    assert _score("perplexity", logits, padded).value == pytest.approx(flat.value)


def test_a_label_of_probability_0_is_a_reason_not_infinity():
    probabilities = np.array([[1.0, 0.0], [0.5, 0.5]])
    score = _score("perplexity", probabilities, np.array([1, 0]), meaning="probabilities", parts=1)
    assert score.value is None
    assert "finite" in score.reason


def test_answers_that_are_no_numbers_are_a_reason():
    score = _score("mse", np.full((4, 2), np.nan), np.zeros((4, 2)), meaning="other")
    assert score.value is None
    assert "4 of 4" in score.reason


OWN = """
import numpy as np
def hits(outputs, labels): return outputs["y"].argmax(axis=1) == labels
def distance(outputs, labels): return np.abs(outputs["y"].argmax(axis=1) - labels).astype(float)
def one(outputs, labels): return 0.5
def words(outputs, labels): return ["a"]
distance.higher_is_better = False
"""


def test_a_function_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_metrics.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_metrics", raising=False)
    logits, labels = _data()
    hits = _score("own_metrics:hits", logits, labels)
    assert hits.value == _score("top-1", logits, labels).value
    assert hits.is_rate
    distance = _score("own_metrics:distance", logits, labels)
    assert distance.value == pytest.approx(np.abs(logits.argmax(axis=1) - labels).mean())
    assert not distance.higher_is_better
    one = _score("own_metrics:one", logits, labels)
    assert (one.value, one.low, one.interval) == (0.5, None, "none")
    with pytest.raises(DataError, match="has to return one number"):
        _score("own_metrics:words", logits, labels)
    with pytest.raises(DataError, match="cannot load"):
        make_metric("own_metrics:none_such")


def test_an_unknown_metric_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"top-1, top-K, f1"):
        make_metric("accuracy!")


@pytest.mark.parametrize("name", ["top-1", "f1", "auc", "perplexity"])
def test_labels_outside_the_classes_are_refused(name):
    logits, labels = _data()
    with pytest.raises(DataError, match="classes 0 to 4"):
        _score(name, logits, labels + 5)


@pytest.mark.parametrize("name", ["top-1", "f1", "auc", "perplexity"])
def test_class_metrics_need_class_scores(name):
    logits, labels = _data()
    with pytest.raises(DataError, match="logits or probabilities"):
        _score(name, logits, labels, meaning="other")


def test_the_bootstrap_covers_what_it_claims():
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(100):
        wanted = rng.normal(size=(200, 1))
        score = _score("mse", wanted + rng.normal(size=wanted.shape), wanted, meaning="other")
        covered += score.low <= 1.0 <= score.high
    assert covered >= 88


def test_answers_that_are_no_numbers_are_no_guess_of_class_0():
    """numpy's argmax of a row of NaN is 0: a dead model on samples of class 0 would be perfect."""
    dead, labels = np.full((60, 3), np.nan, np.float32), np.zeros(60, np.int64)
    assert _score("f1", dead, labels).value == 0.0
    assert top1_correct(dead, labels) == 0


def test_half_the_answers_that_are_no_numbers_cost_recall_and_no_precision():
    scores, labels = np.eye(2, dtype=np.float32)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    scores[:1] = np.nan
    # Class 0: one of two found, no wrong guess: 2/3; class 1: 1.
    assert _score("f1", scores, labels).value == pytest.approx((2 / 3 + 1) / 2)


def test_an_area_over_several_classes_does_not_rank_what_is_no_number():
    logits, labels = _data()
    logits[:5] = np.nan
    score = _score("auc", logits, labels)
    assert score.value is None
    assert "not all numbers" in score.reason
