import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipj_edge.benchmark.result.latencies import Latencies, joined


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(2, 64))
@settings(deadline=None)
def test_what_is_kept_is_every_stride_th_sample(chunks, capacity):
    store, seen = Latencies(capacity), np.empty(0)
    for size in chunks:
        chunk = np.arange(len(seen), len(seen) + size, dtype=float)
        store.add(chunk)
        seen = np.r_[seen, chunk]
    assert store.count == len(seen)
    assert store.kept.tolist() == seen[:: store.stride].tolist()
    assert len(store.kept) <= capacity
    assert store.total_s == pytest.approx(seen.sum())


def test_a_short_run_keeps_every_sample():
    samples = np.random.default_rng(0).lognormal(-8, 1, 1000)
    store = Latencies()
    for part in np.array_split(samples, 7):
        store.add(part)
    assert store.stride == 1
    assert store.percentiles((50, 99)) == tuple(np.percentile(samples, (50, 99)))
    assert (store.least_s, store.most_s) == (samples.min(), samples.max())


def test_ten_million_samples_take_the_memory_of_a_hundred_thousand():
    rng = np.random.default_rng(0)
    chunk = rng.lognormal(-8, 0.5, 8191)
    tracemalloc.start()
    store = Latencies()
    for _ in range(1250):
        store.add(chunk)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert store.count == 1250 * 8191
    assert peak_bytes < 4 << 20
    assert store.percentiles((50, 99)) == pytest.approx(np.percentile(chunk, (50, 99)), rel=0.02)


def test_the_histogram_holds_every_kept_sample():
    store = Latencies()
    store.add(np.random.default_rng(0).lognormal(-8, 1, 5000))
    histogram = store.histogram()
    assert sum(histogram.counts) == 5000
    assert len(histogram.edges_s) == len(histogram.counts) + 1
    same = Latencies()
    same.add(np.full(10, 3e-5))
    assert sum(same.histogram().counts) == 10


def test_joined_stores_are_thinned_to_the_coarsest():
    long, short = Latencies(16), Latencies(16)
    long.add(np.full(64, 2.0))
    short.add(np.full(8, 1.0))
    both = joined([long, short])
    assert both.count == 72
    assert both.total_s == pytest.approx(136)
    # Eight times as many samples of the long one, as there were.
    assert (both.kept == 2.0).sum() == 8 * (both.kept == 1.0).sum()
    assert (both.least_s, both.most_s) == (1.0, 2.0)
