"""Bundles that answer with class numbers or label maps, against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics as theirs

from ipj_edge.errors import DataError
from ipj_edge.metrics import Batch, default_metrics, make_metric


def _score(name, outputs, labels, meaning="other", parts=3):
    metric = make_metric(name)
    for rows in np.array_split(np.arange(len(labels)), parts):
        metric.add(Batch({"y": outputs[rows]}, labels[rows], {}, {"y": meaning}))
    return metric.score()


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 300)
    return np.where(rng.random(300) < 0.7, labels, rng.integers(0, 5, 300)), labels


@pytest.fixture
def maps():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, (20, 9, 11))
    return np.where(rng.random(labels.shape) < 0.8, labels, 3), labels


@pytest.mark.parametrize("shape", [(300,), (300, 1)])
def test_top_1_of_class_numbers_is_their_share_that_equals_the_label(numbers, shape):
    answers, labels = numbers
    score = _score("top-1", answers.reshape(shape), labels)
    assert score.value == pytest.approx((answers == labels).mean())
    assert (score.n, score.is_rate, score.interval) == (300, True, "wilson")


def test_f1_of_class_numbers_agrees_with_scikit_learn(numbers):
    assert _score("f1", *numbers).value == pytest.approx(theirs.f1_score(numbers[1], numbers[0], average="macro"))


def test_top_2_needs_scores(numbers):
    with pytest.raises(DataError, match="top-2: no output"):
        _score("top-2", *numbers)


def test_pixel_accuracy_is_the_share_of_places(maps):
    score = _score("pixel-accuracy", *maps)
    assert score.value == pytest.approx((maps[0] == maps[1]).mean())
    assert score.low < score.value < score.high
    assert (score.n, score.is_rate) == (20, True)


def test_mean_iou_agrees_with_scikit_learn(maps):
    wanted = theirs.jaccard_score(maps[1].ravel(), maps[0].ravel(), average="macro")
    score = _score("mean-iou", *maps)
    assert score.value == pytest.approx(wanted)
    assert score.low <= score.value <= score.high


@pytest.mark.parametrize("axis", [1, 3])
def test_label_maps_come_of_scores_too(maps, axis):
    answers, labels = maps
    scores = np.moveaxis(np.eye(4, dtype=np.float32)[answers], -1, axis)
    for name in ("pixel-accuracy", "mean-iou"):
        assert _score(name, scores, labels, "logits").value == _score(name, answers, labels).value


@pytest.mark.parametrize(("dtype", "ignored"), [("int64", -100), ("uint8", 255)])
def test_ignored_places_are_not_counted(maps, dtype, ignored):
    answers, labels = maps
    labels = labels.astype(dtype)
    labels[:, :2] = ignored
    assert _score("pixel-accuracy", answers, labels).value == pytest.approx((answers == labels)[:, 2:].mean())
    assert _score("mean-iou", answers, labels).value == pytest.approx(
        theirs.jaccard_score(labels[:, 2:].ravel(), answers[:, 2:].ravel(), average="macro")
    )


def test_labels_that_are_all_ignored_give_a_reason_and_no_figure(maps):
    for name in ("pixel-accuracy", "mean-iou"):
        score = _score(name, maps[0], np.full(maps[1].shape, -100))
        assert score.value is None
        assert score.reason == "no label is counted"


@pytest.mark.parametrize(
    ("answers", "labels", "meaning", "wanted"),
    [
        (np.zeros(4, np.int64), np.zeros(4, np.int64), "other", ("top-1",)),
        (np.zeros((4, 3), np.float32), np.zeros(4, np.int64), "logits", ("top-1",)),
        (np.zeros((4, 3), np.float32), np.zeros(4, np.int64), "other", ()),
        (np.zeros(4, np.int64), np.zeros(4, np.float32), "other", ()),
        (np.zeros((4, 1, 6, 7), np.uint8), np.zeros((4, 6, 7), np.int64), "other", ("pixel-accuracy", "mean-iou")),
        (np.zeros((4, 6, 7), np.float32), np.zeros((4, 6, 7), np.float32), "other", ()),
        (np.zeros((4, 3, 6, 7), np.float32), np.zeros((4, 6, 7), np.int64), "logits", ("pixel-accuracy", "mean-iou")),
    ],
)
def test_metrics_are_chosen_by_what_fits(answers, labels, meaning, wanted):
    assert default_metrics(Batch({"y": answers}, labels, {}, {"y": meaning})) == wanted
