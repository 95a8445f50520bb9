"""Samples between two drains: bounded memory, no energy lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge_probes.serial.sample_store import BlockMean, SampleStore


def test_samples_come_back_once() -> None:
    store = SampleStore()
    store.append(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    times_s, watts = store.take()
    assert (times_s.tolist(), watts.tolist()) == ([1.0, 2.0], [3.0, 4.0])
    assert len(store.take()[0]) == 0


@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=60))
def test_a_long_backlog_keeps_its_span_and_its_energy_and_not_its_size(sizes: list[int]) -> None:
    store = SampleStore(capacity=512)
    total = 0
    for size in sizes:
        index = np.arange(total, total + size, dtype=np.float64)
        store.append(index * 0.001, 2.0 + index * 0.001)
        total += size
    times_s, watts = store.take()
    assert len(times_s) < 512 + 400
    assert (np.diff(times_s) > 0).all()
    # Power that rises evenly is 2 + t at every kept point, whatever was averaged.
    assert np.allclose(watts, 2.0 + times_s)
    # No kept point stands for more than a share of the backlog, the first one included.
    longest_s = 0.001 * max(1, total // 128)
    assert times_s[0] <= longest_s
    assert np.diff(times_s, append=total * 0.001).max() <= 2 * longest_s


def test_a_drain_brings_full_resolution_back() -> None:
    store = SampleStore(capacity=512)
    store.append(np.arange(600.0), np.ones(600))
    assert len(store.take()[0]) == 300
    store.append(np.arange(100.0), np.ones(100))
    assert len(store.take()[0]) == 100


@given(cuts=st.lists(st.integers(0, 1000), max_size=10))
def test_block_means_do_not_depend_on_chunks(cuts: list[int]) -> None:
    values = np.arange(1000, dtype=np.float64)
    means = BlockMean(100)
    parts = [means.feed(part) for part in np.split(values, sorted(cuts))]
    assert np.concatenate(parts) == pytest.approx(values.reshape(10, 100).mean(axis=1))
