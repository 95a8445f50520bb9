import time

import numpy as np
import pytest

from ipj_edge.energy import Meter, measure
from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.testing.sensors import HandProbe, ManualClock
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.replay import ReplayProbe, ReplaySampler, load_trace

CSV = "# recorded on a bench\ntime_s,board_w,usb_w\n10.0,1.0,0.5\n10.1,2.0,0.5\n10.3,4.0,0.5\n"


def test_a_csv_and_an_npz_hold_the_same_trace(tmp_path):
    (tmp_path / "t.csv").write_text(CSV)
    arrays = {"time_s": [10.0, 10.1, 10.3], "board_w": [1.0, 2.0, 4.0], "usb_w": [0.5] * 3}
    np.savez(tmp_path / "t.npz", **{name: np.array(values) for name, values in arrays.items()})
    for name in ("t.csv", "t.npz"):
        times_s, watts = load_trace(tmp_path / name)
        assert times_s.tolist() == [10.0, 10.1, 10.3]
        assert {rail: power.tolist() for rail, power in watts.items()} == {
            "board": [1.0, 2.0, 4.0],
            "usb": [0.5, 0.5, 0.5],
        }


def test_a_trace_played_back_gives_its_own_energy():
    clock = ManualClock()
    times_s = np.arange(0, 20, 0.1)
    watts = 5 + 3 * np.sin(times_s)
    sampler = ReplaySampler("trace.csv", times_s, {"board": watts}, clock=lambda: clock.now_s)
    with Meter([HandProbe(sampler)], clocks=clock.clocks) as meter, meter.window() as window:
        for _ in range(150):
            clock.advance(0.1)
    part = times_s <= 15.0
    assert window.reading.joules == pytest.approx(np.trapezoid(watts[part], times_s[part]), rel=1e-3)
    assert window.reading.provenance == "modelled"
    assert "replayed from trace.csv" in window.reading.note


def test_the_end_of_a_trace_is_an_error_not_zero_watts():
    clock = ManualClock()
    sampler = ReplaySampler("t", np.array([0.0, 0.1]), {"board": np.ones(2)}, clock=lambda: clock.now_s)
    sampler.start()
    clock.advance(0.1)
    assert sampler.drain()["board"][1].size == 2
    clock.advance(5.0)
    with pytest.raises(ProbeReadError, match="trace ended"):
        sampler.drain()


def test_it_plays_in_real_time(tmp_path):
    rows = "".join(f"{index * 0.01},8.0\n" for index in range(12_000))  # two minutes, for a busy machine
    (tmp_path / "t.csv").write_text("time_s,board_w\n" + rows)
    with measure("replay", options=ProbeOptions(port=str(tmp_path / "t.csv")), error=0.2) as energy:
        time.sleep(0.4)
    assert energy.reading.joules == pytest.approx(8.0 * energy.reading.seconds, rel=0.01)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "needs a column time_s"),
        ("time_s,board\n1,2\n", "needs a column time_s"),
        ("time_s,board_w\n1,2\n", "at least two samples"),
        ("time_s,board_w\n1,2\n1,3\n", "do not increase"),
        ("time_s,board_w\n1,2\n2,nan\n", "not a number"),
        ("time_s,board_w\n1,2\n2\n", "does not have 2 values"),
        ("time_s,board_w\n1,2\n2,x\n", "cannot read the trace"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_the_reason(tmp_path, text, reason):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ProbeUnavailableError, match=reason):
        ReplayProbe().open(ProbeOptions(port=str(tmp_path / "t.csv")))
    state = ReplayProbe().availability(ProbeOptions(port=str(tmp_path / "t.csv")))
    assert not state.available


@pytest.mark.parametrize("port", [None, "/nonexistent.csv", "/nonexistent.npz"])
def test_a_missing_file_is_refused_with_what_to_do(port):
    state = ReplayProbe().availability(ProbeOptions(port=port))
    assert not state.available
    assert "--port" in state.fix
    with pytest.raises(ProbeUnavailableError):
        ReplayProbe().open(ProbeOptions(port=port))
