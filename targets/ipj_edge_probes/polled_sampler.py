"""Meters that answer one question at a time: a thread that asks at a jittered interval."""

from __future__ import annotations

import random
import threading
import time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ipj_edge.errors import ProbeError, ProbeReadError
from ipj_edge.values import ProbeFacts, Rail
from ipj_edge_probes.sample_store import SampleStore
from ipj_edge_probes.serial_port import SerialPort

Array = NDArray[np.float64]

JITTER = 0.2


class PolledMeter(Protocol):
    """What a driver knows of its meter; `PolledSampler` makes a power sampler of it.

    Attributes:
        facts: What is known about its figures.
        rails: The one rail it measures.
        port: Where it is; belongs to the sampler's thread while it samples.
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


class PolledSampler:
    """A `PowerSampler` over a meter that is asked.

    Args:
        meter: The driver.
        rng: Source of the jitter, which keeps polls from falling into step with the load.
    """

    def __init__(self, meter: PolledMeter, rng: random.Random | None = None) -> None:
        self.facts = meter.facts
        self.rails = meter.rails
        self._meter = meter
        self._rng = rng or random.Random()
        self._store = SampleStore()
        self._error: ProbeError | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name=f"{self.facts.name}-poller", daemon=True)
        self._closed = False

    def start(self) -> None:
        """Begin to sample; returns with the first sample taken.

        Raises:
            ProbeReadError: the meter does not answer.
        """
        try:
            self._sample()
        except ProbeError:
            self.stop()
            raise
        self._thread.start()

    def drain(self) -> dict[str, tuple[Array, Array]]:
        """Return and forget the samples so far; see `ipj_edge.protocols.PowerSampler`.

        Raises:
            ProbeReadError: the meter failed or was unplugged.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            samples = self._store.take()
        if not self._thread.is_alive() and not self._stopping.is_set():
            raise ProbeReadError(f"'{self.facts.name}' is not sampling")
        return {self.rails[0].name: samples}

    def stop(self) -> None:
        """End sampling and release the port. Calling twice is allowed."""
        if self._closed:
            return
        self._closed = True
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._meter.port.close()

    def _poll(self) -> None:
        try:
            while not self._stopping.wait(self._meter.interval_s * self._rng.uniform(1 - JITTER, 1 + JITTER)):
                self._sample()
        except ProbeError as error:
            with self._lock:
                self._error = error

    def _sample(self) -> None:
        asked_s = time.monotonic()
        watts = self._meter.measure()
        answered_s = time.monotonic()
        with self._lock:
            self._store.append(np.array([(asked_s + answered_s) / 2]), np.array([watts]))
