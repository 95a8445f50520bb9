"""CPU time as energy: a model for machines without a sensor, never a measurement.

E = CPU seconds · watts of a busy core (+ watts of the idle machine · seconds). CPU seconds are user and system
time of this process and of the children it has waited for. The default of 4 W a logical core is what CodeCarbon
assumes where it does not know the processor; idle power is not counted unless it is given. Give your own watts
(``core_power_w``, ``idle_power_w``) when you know them. Models of this kind were found up to a factor of two off
the wall, so ±50 % is stated (codecarbon, "Power usage"; "Estimating the energy of machine learning", CCGrid 2023,
hal-04030223).
"""

from __future__ import annotations

import resource
import time

from ipj_edge.errors import ConfigError
from ipj_edge.protocols import PowerProbe
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail

CORE_POWER_W = 4.0
ACCURACY = 0.5

# A child's time is added when it is waited for; a running process's own is up to date within one timer tick.
UPDATE_INTERVAL_S = 0.001


class CpuTimeCounter:
    """Counts the CPU time of this process and of its finished children as energy."""

    def __init__(self, core_power_w: float, idle_power_w: float) -> None:
        self.rails: tuple[Rail, ...] = (Rail(name="cpu-time", boundary="process"),)
        self._core_power_w, self._idle_power_w = core_power_w, idle_power_w
        idle = f" + {idle_power_w:g} W idle" if idle_power_w else ""
        self.facts = ProbeFacts(
            name="modelled",
            boundary="process",
            provenance="modelled",
            update_interval_s=UPDATE_INTERVAL_S,
            quantum_j=core_power_w * 1e-6,
            accuracy=ACCURACY,
            note=f"CPU time x {core_power_w:g} W a core{idle}, ±50 %",
        )
        self._start_s, self._start_cpu_s = time.monotonic(), _cpu_seconds()

    def read(self) -> tuple[float, dict[str, float]]:
        """Return (monotonic seconds, modelled joules since the counter was opened)."""
        now_s, cpu_s = time.monotonic(), _cpu_seconds()
        busy_j = (cpu_s - self._start_cpu_s) * self._core_power_w
        return now_s, {"cpu-time": busy_j + (now_s - self._start_s) * self._idle_power_w}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class ModelledProbe:
    """The CPU-time model behind the probe interface."""

    name = "modelled"

    def availability(self, options: ProbeOptions) -> Availability:
        """Say that it works; it needs nothing."""
        return Availability(available=True, reason="no sensor needed: CPU time x watts a core, ±50 %")

    def open(self, options: ProbeOptions) -> CpuTimeCounter:
        """Start to count CPU time.

        Raises:
            ConfigError: a power given is not usable.
        """
        core_power_w = CORE_POWER_W if options.core_power_w is None else options.core_power_w
        idle_power_w = options.idle_power_w or 0.0
        if not (0 < core_power_w < 1000 and 0 <= idle_power_w < 100_000):
            raise ConfigError(
                f"the CPU-time model needs watts above 0 a core and idle watts of at least 0, "
                f"got {core_power_w:g} and {idle_power_w:g}"
            )
        return CpuTimeCounter(core_power_w, idle_power_w)


def _cpu_seconds() -> float:
    """Return CPU seconds of this process and of its finished children; unlike os.times() not in ticks of 10
    ms.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


_: type[PowerProbe] = ModelledProbe
