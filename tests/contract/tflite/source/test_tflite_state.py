"""What a model keeps between calls: a stream goes on, independent samples begin afresh, `reset` begins a new stream."""

from __future__ import annotations

import numpy as np
import pytest

from ipj_edge import load
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.errors import TargetError
from ipj_edge.runtime.verification import verify


@pytest.fixture
def counting(counter, write, converted):
    return converted(write(counter))


def row(value: float) -> np.ndarray:
    return np.array([[value, 10 * value]], np.float32)


def test_the_manifest_says_what_is_kept(counting):
    (kept,) = open_bundle(counting).manifest.state
    assert (kept.name, kept.kind) == ("total", "resource")


def test_single_samples_are_a_stream_until_reset(counting):
    with load(counting) as model:
        assert [model.run(row(1)).outputs["y"][0, 0] for _ in range(3)] == [101, 102, 103]
        model.reset()
        assert model.run(row(1)).outputs["y"].tolist() == [[101, 110]]


def test_samples_given_together_do_not_depend_on_one_another(counting):
    with load(counting) as model:
        model.run(row(50))
        together = model.run(np.concatenate([row(1), row(2), row(3)])).outputs["y"]
        assert together[:, 0].tolist() == [101, 102, 103]
        assert model.run(row(4)).outputs["y"][0, 0] == 104


def test_a_clone_has_a_state_of_its_own(counting):
    with load(counting) as model:
        model.run(row(5))
        with model.clone() as other:
            assert other.run(row(1)).outputs["y"][0, 0] == 101
        assert model.run(row(1)).outputs["y"][0, 0] == 106


def test_a_stateful_bundle_can_be_verified_twice(counting):
    for _ in range(2):
        assert verify(counting).outputs[0].relative_l2 == 0


def test_a_closed_model_cannot_be_reset(counting):
    model = load(counting)
    model.close()
    with pytest.raises(TargetError, match="closed"):
        model.reset()


def test_resetting_a_model_without_state_changes_nothing(scaled_sum, write, converted):
    with load(converted(write(scaled_sum))) as model:
        before = model.run(np.ones((1, 3, 5), np.float32)).outputs["y"]
        model.reset()
        assert (model.run(np.ones((1, 3, 5), np.float32)).outputs["y"] == before).all()
