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


def test_busy_seconds_times_watts_a_core():
    with measure("modelled") as energy:
        spin(0.3)
    reading = energy.reading
    assert reading.joules == pytest.approx(0.3 * CORE_POWER_W, rel=0.1)
    assert reading.low <= 0.5 * reading.joules
    assert reading.high >= 1.5 * reading.joules
    assert (reading.provenance, reading.boundary) == ("modelled", "process")
    assert "4 W a core" in reading.note


def test_a_sleep_costs_next_to_nothing_unless_idle_power_is_given():
    with measure("modelled") as idle:
        time.sleep(0.3)
    with measure("modelled", options=ProbeOptions(idle_power_w=10.0)) as charged:
        time.sleep(0.3)
    assert idle.reading.joules < 0.1
    assert charged.reading.joules == pytest.approx(3.0, rel=0.2)
    assert "10 W idle" in charged.reading.note


def test_children_count_once_they_are_waited_for():
    work = "import time\nwhile time.process_time() < 0.4: pass"
    with measure("modelled", options=ProbeOptions(core_power_w=10.0)) as energy:
        subprocess.run([sys.executable, "-c", work], check=True)
    assert energy.reading.joules == pytest.approx(4.0, rel=0.2)


@pytest.mark.parametrize(
    "given",
    [{"core_power_w": 0.0}, {"core_power_w": -1.0}, {"core_power_w": float("nan")}, {"idle_power_w": -1.0}],
)
def test_watts_that_cannot_be_are_refused(given):
    with pytest.raises(ConfigError, match="watts above 0"):
        ModelledProbe().open(ProbeOptions(**given))


def test_the_count_never_falls():
    counter = ModelledProbe().open(ProbeOptions())
    joules = [counter.read()[1]["cpu-time"] for _ in range(1000)]
    assert joules == sorted(joules)
