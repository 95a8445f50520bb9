"""The timed loop and the windows around it, on work of known length."""

import gc
import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest

from ipj_edge.benchmark.result.latencies import Latencies
from ipj_edge.benchmark.run.issuing import back_to_back, paced
from ipj_edge.benchmark.run.measured import merged
from ipj_edge.benchmark.run.measuring import Plan, Warmth, measure, warm_up
from ipj_edge.energy import Meter
from ipj_edge.protocols import EnergyCounter
from ipj_edge.testing.sensors import ManualClock
from ipj_edge.values import Availability, ProbeFacts, Rail

WARM = Warmth(seconds=0, queries=0, settled=True)
QUERIES = [{"x": np.full(1, index)} for index in range(8)]


def _spin(seconds):
    def run(query):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    return run


@pytest.fixture
def clock(monkeypatch):
    """A clock that only queries and waiting move: what a busy machine adds would decide otherwise."""
    clock = ManualClock()
    for module in ("issuing", "measuring"):
        monkeypatch.setattr(f"ipj_edge.benchmark.run.{module}.perf_counter", lambda: clock.now_s)
    monkeypatch.setattr("ipj_edge.benchmark.run.issuing.time", SimpleNamespace(sleep=clock.advance))
    return clock


def _plan(**fields):
    return Plan(**({"windows": 3, "window_s": 0.05, "max_s": 0.15, "error": 0.5} | fields))


class _Steady:
    """A counter of a source of 10 W that updates ten times a second."""

    name = "steady"

    def __init__(self, update_s=0.1):
        self.facts = ProbeFacts(
            name="steady", boundary="board", provenance="measured", update_interval_s=update_s, accuracy=0.01
        )
        self.rails = (Rail(name="all", boundary="board"),)

    def availability(self, options):
        return Availability(available=True)

    def open(self, options):
        return self

    def read(self):
        now = time.monotonic()
        return now, {"all": 10 * now}

    def close(self):
        pass


_: type[EnergyCounter] = _Steady


def test_inputs_are_rotated(clock):
    seen = []
    issued = back_to_back(lambda query: seen.append(int(query["x"][0])), QUERIES, 0.0, ())
    assert issued.queries == 1
    seen.clear()
    back_to_back(lambda query: (seen.append(int(query["x"][0])), clock.advance(0.002)), QUERIES, 0.019, ())
    assert seen == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]


def test_a_pace_is_kept_without_drift(clock):
    store, begun_s = Latencies(), clock.now_s
    issued = paced(lambda query: clock.advance(0.007), QUERIES, 0.4, (store,), 0.02)
    assert (issued.queries, issued.missed, store.count) == (20, 0, 20)
    assert clock.now_s - begun_s == pytest.approx(0.4)


def test_the_gaps_of_a_pace_cost_no_cpu_time():
    cpu_s, start = time.process_time(), time.perf_counter()
    paced(lambda query: None, QUERIES, 0.4, (), 0.02)
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_s
    assert seconds >= 0.4
    assert cpu_s < 0.2 * seconds


def test_a_query_longer_than_its_slot_misses_slots_and_nothing_queues_up(clock):
    issued = paced(lambda query: clock.advance(0.025), QUERIES, 0.2, (), 0.01)
    # Begun in slots 0, 3, 6 … 18: each runs through two more.
    assert (issued.queries, issued.missed) == (7, 14)


def test_more_samples_than_a_chunk_all_arrive(clock):
    store = Latencies(1 << 20)
    issued = back_to_back(lambda query: clock.advance(2**-20), QUERIES, 2**-20 * 20_000, (store,))
    assert issued.queries == store.count == 20_000


def test_a_window_counts_cpu_time_queries_and_samples():
    around_s = time.process_time()
    with Meter(["none"]) as meter:
        measured = measure(_spin(0.002), QUERIES, meter, _plan(), samples_per_query=4, warmth=WARM)
    around_s = time.process_time() - around_s
    assert len(measured.windows) >= 3
    assert sum(window.cpu_s for window in measured.windows) <= around_s
    for window in measured.windows:
        assert window.inferences == 4 * window.queries
        assert window.cpu_s >= 0.002 * window.queries
        assert window.seconds >= 0.05
        assert 0.002 <= window.p50_s <= window.p99_s
        assert window.joules is None
        assert window.reason
    assert measured.latencies.count == measured.total("queries")


def test_it_stops_once_the_error_is_reached_and_not_before_the_fewest_windows():
    with Meter(["none"]) as meter:
        steady = measure(_spin(0.002), QUERIES, meter, _plan(error=100, max_s=600), warmth=WARM)
    assert (steady.stopped_by, len(steady.windows)) == ("confidence", 3)


def test_it_stops_after_its_duration_where_the_error_is_not_reached(clock):
    turns = itertools.count()

    def unsteady(query):
        clock.advance(0.002 * (1 + next(turns) // 25 % 2))

    with Meter(["none"]) as meter:
        pressed = measure(unsteady, QUERIES, meter, _plan(error=1e-9, max_s=0.3), warmth=WARM)
    assert pressed.stopped_by == "duration"
    assert 3 < len(pressed.windows) <= 7


def test_idle_windows_bracket_the_work_and_joules_are_read():
    with Meter([_Steady(0.001)]) as meter:
        start_s = time.monotonic()
        measured = measure(_spin(0.002), QUERIES, meter, _plan(idle=True), warmth=WARM)
        around_s = time.monotonic() - start_s
    assert len(measured.idle) == 2
    # The meter's edges lie around the loop's own: a source of 10 W gives at least 10 J for each of its seconds.
    assert all(window.joules >= 10 * window.seconds for window in measured.windows)
    assert sum(window.joules for window in measured.windows) <= 10 * around_s


def test_windows_on_a_slow_sensor_begin_at_different_phases():
    with Meter([_Steady()], error=0.9) as meter:
        measured = measure(_spin(0.001), QUERIES, meter, _plan(windows=5, error=0.9), warmth=WARM)
    phases = [window.start_s % 0.1 for window in measured.windows]
    pauses = [
        later.start_s - earlier.start_s - earlier.seconds
        for earlier, later in zip(measured.windows, measured.windows[1:], strict=False)
    ]
    # Two of five may fall together by chance, on a busy machine.
    assert len({round(phase, 3) for phase in phases}) >= 3
    assert max(pauses) - min(pauses) > 0.01


def test_the_garbage_collector_is_out_of_the_loop_and_back_afterwards():
    seen = []
    with Meter(["none"]) as meter:
        measure(lambda query: seen.append(gc.isenabled()), QUERIES, meter, _plan(window_s=0.001), warmth=WARM)
    assert not any(seen)
    assert gc.isenabled()


def test_the_warm_up_ends_when_latencies_settle_and_says_when_they_do_not(monkeypatch):
    # A clock that only the queries move: what a busy machine adds would decide otherwise.
    now_s, calls = [0.0], []
    monkeypatch.setattr("ipj_edge.benchmark.run.measuring.perf_counter", lambda: now_s[0])

    def falling(query):
        calls.append(1)
        now_s[0] += max(0.0002, 0.01 / (1 + len(calls)))

    warm = warm_up(falling, QUERIES)
    assert warm.queries == len(calls) >= 40
    assert warm.settled
    turn = iter(range(10**9))

    def unsteady(query):
        now_s[0] += 0.001 * 2 ** (next(turn) // 20 % 4)

    restless = warm_up(unsteady, QUERIES)
    assert not restless.settled
    assert restless.seconds >= 2.0


def test_rounds_of_an_interleaved_measurement_join():
    with Meter(["none"]) as meter:
        parts = [measure(_spin(0.002), QUERIES, meter, _plan(), warmth=WARM) for _ in range(2)]
    whole = merged(parts)
    assert len(whole.windows) == 6
    assert whole.latencies.count == sum(part.latencies.count for part in parts)
