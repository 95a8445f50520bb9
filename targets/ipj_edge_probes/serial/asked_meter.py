"""Meters that answer one question at a time, at a serial port."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ipj_edge.energy.polling import PolledSampler
from ipj_edge.errors import ProbeError
from ipj_edge.protocols import PowerSampler
from ipj_edge.values import ProbeFacts, Rail
from ipj_edge_probes.serial.port import SerialPort

Array = NDArray[np.float64]


class AskedMeter(Protocol):
    """What a driver knows of its meter; `AskedSampler` makes a power sampler of it.

    Attributes:
        facts: What is known about its figures.
        rails: The one rail it measures.
        port: Where it is; belongs to the sampler while it samples.
        interval_s: Seconds between two questions.
    """

    facts: ProbeFacts
    rails: tuple[Rail, ...]
    port: SerialPort
    interval_s: float

    def measure(self) -> float:
        """Ask the meter for the power in watts.

        Raises:
            ProbeReadError: no answer, or one that is no power.
        """


class AskedSampler:
    """A `PowerSampler` over a meter that is asked; it owns the meter's port and releases it."""

    def __init__(self, meter: AskedMeter) -> None:
        self.facts = meter.facts
        self.rails = meter.rails
        self._port = meter.port
        rail = meter.rails[0].name
        self._sampler = PolledSampler(meter.facts, meter.rails, lambda: {rail: meter.measure()}, meter.interval_s)

    def start(self) -> None:
        """Begin to sample; returns with the first sample taken.

        Raises:
            ProbeReadError: the meter does not answer.
        """
        try:
            self._sampler.start()
        except ProbeError:
            self.stop()
            raise

    def drain(self) -> dict[str, tuple[Array, Array]]:
        """Return and forget the samples so far; see `ipj_edge.protocols.PowerSampler`.

        Raises:
            ProbeReadError: the meter failed or was unplugged.
        """
        return self._sampler.drain()

    def stop(self) -> None:
        """End sampling and release the port. Calling twice is allowed."""
        self._sampler.stop()
        self._port.close()


_: type[PowerSampler] = AskedSampler
