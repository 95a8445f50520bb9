import resource
import subprocess
import sys
import time

import pytest

from ipj_edge.energy import measure
from ipj_edge.errors import ConfigError
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.modelled import CORE_POWER_W, ModelledProbe


def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def cpu_seconds():
    """CPU time of this process and of the children it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


class Spent:
    """CPU and wall-clock seconds around a block."""

    def __enter__(self):
        self._cpu_s, self._start_s = cpu_seconds(), time.monotonic()
        return self

    def __exit__(self, *_):
        self.cpu_s, self.seconds = cpu_seconds() - self._cpu_s, time.monotonic() - self._start_s


def test_busy_seconds_times_watts_a_core():
    with Spent() as around, measure("modelled") as energy, Spent() as inside:
        spin(0.3)
    reading = energy.reading
    assert inside.cpu_s >= 0.3
    assert inside.cpu_s * CORE_POWER_W <= reading.joules + 1e-6
    assert reading.joules <= around.cpu_s * CORE_POWER_W + 1e-6
    assert reading.low <= 0.5 * reading.joules
    assert reading.high >= 1.5 * reading.joules
    assert (reading.provenance, reading.boundary) == ("modelled", "process")
    assert "4 W a core" in reading.note


def test_a_sleep_costs_next_to_nothing_unless_idle_power_is_given():
    with Spent() as idle_around, measure("modelled") as idle:
        time.sleep(0.3)
    with (
        Spent() as around,
        measure("modelled", options=ProbeOptions(idle_power_w=10.0)) as charged,
        Spent() as inside,
    ):
        time.sleep(0.3)
    assert idle.reading.joules <= idle_around.cpu_s * CORE_POWER_W + 1e-6
    assert 3.0 <= inside.seconds * 10.0 <= charged.reading.joules
    assert charged.reading.joules <= around.seconds * 10.0 + around.cpu_s * CORE_POWER_W + 1e-6
    assert "10 W idle" in charged.reading.note


def test_children_count_once_they_are_waited_for():
    work = "import time\nwhile time.process_time() < 0.4: pass"
    with Spent() as around, measure("modelled", options=ProbeOptions(core_power_w=10.0)) as energy:
        subprocess.run([sys.executable, "-c", work], check=True)
    assert 4.0 <= energy.reading.joules <= 10.0 * around.cpu_s + 1e-6


@pytest.mark.parametrize(
    "given",
    [{"core_power_w": 0.0}, {"core_power_w": -1.0}, {"core_power_w": float("nan")}, {"idle_power_w": -1.0}],
)
def test_watts_that_cannot_be_are_refused(given):
    with pytest.raises(ConfigError, match=r"watts above 0|expected a number from 0"):
        ModelledProbe().open(ProbeOptions(**given))


def test_the_count_never_falls():
    counter = ModelledProbe().open(ProbeOptions())
    joules = [counter.read()[1]["cpu-time"] for _ in range(1000)]
    assert joules == sorted(joules)
