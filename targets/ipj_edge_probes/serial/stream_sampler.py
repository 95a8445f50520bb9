"""Meters that stream samples: a thread that owns the port, time by the clock fit, and the account of losses."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ipj_edge.errors import ProbeError, ProbeReadError, SampleLossError
from ipj_edge.protocols import PowerSampler
from ipj_edge.values import ProbeFacts, Rail
from ipj_edge_probes.serial.port import SerialPort
from ipj_edge_probes.serial.sample_clock import SampleClock, Timeline
from ipj_edge_probes.serial.sample_store import SampleStore

Array = NDArray[np.float64]
logger = logging.getLogger(__name__)

FIRST_SAMPLE_TIMEOUT_S = 5.0
SILENCE_LIMIT_S = 3.0
LOSS_LIMIT = 0.001
# Fewer samples than this are no base for a share of one in a thousand.
LOSS_BASE_SAMPLES = 2000
# A crystal is good to one in ten thousand; this leaves room for the fit over ten seconds.
CRYSTAL_DRIFT_LIMIT = 0.005


@dataclass(frozen=True, kw_only=True)
class SampleChunk:
    """What a chunk of bytes amounted to.

    Attributes:
        device_s: Mid-points of the samples in the meter's time, shape (n,).
        watts: Mean power of the samples, shape (n,); lost ones are held over and counted in ``lost``.
        expected: Raw samples this batch accounts for, lost ones included.
        lost: Raw samples that were lost.
        newest_s: Meter's time up to which samples have arrived; None when nothing new was decoded.
    """

    device_s: Array
    watts: Array
    expected: int
    lost: int = 0
    newest_s: float | None = None


class StreamingMeter(Protocol):
    """What a driver knows of its meter; `StreamSampler` makes a power sampler of it.

    Attributes:
        facts: What is known about its figures.
        rails: The one rail it measures.
        port: Where it is; belongs to the sampler's thread between begin and end.
        pace_s: Seconds between two looks at the port.
        rate_hz: Raw samples per second.
        drift_limit: Largest believable rate error of its clock; None where the rate was learnt from arrivals.
    """

    facts: ProbeFacts
    rails: tuple[Rail, ...]
    port: SerialPort
    pace_s: float
    rate_hz: float
    drift_limit: float | None

    def begin(self) -> None:
        """Tell the meter to stream."""

    def feed(self, data: bytes) -> SampleChunk:
        """Decode a chunk of the stream.

        Raises:
            ProbeReadError: the meter reports a failure that spoils the measurement.
        """

    def end(self) -> None:
        """Tell the meter to stop; it may be gone."""


class LossAccount:
    """Samples expected and lost over the last second or more."""

    def __init__(self, base: int) -> None:
        self._base = max(base, LOSS_BASE_SAMPLES)
        self._batches: deque[tuple[int, int]] = deque()
        self._expected = self._lost = 0

    def add(self, expected: int, lost: int) -> None:
        """Count a batch, and forget those that are older than the base."""
        self._batches.append((expected, lost))
        self._expected += expected
        self._lost += lost
        while self._expected - self._batches[0][0] >= self._base:
            old_expected, old_lost = self._batches.popleft()
            self._expected -= old_expected
            self._lost -= old_lost

    def excess(self) -> tuple[int, int] | None:
        """Return (expected, received) when more than one sample in a thousand was lost."""
        base = max(self._expected, self._base)
        return (base, base - self._lost) if self._lost > LOSS_LIMIT * base else None


class StreamSampler:
    """A `PowerSampler` over a meter that streams."""

    def __init__(self, meter: StreamingMeter) -> None:
        self.facts = meter.facts
        self.rails = meter.rails
        self._meter = meter
        self._clock = SampleClock()
        self._timeline = Timeline(self._clock)
        self._store = SampleStore()
        self._losses = LossAccount(int(meter.rate_hz))
        self._excess: tuple[int, int] | None = None
        self._error: ProbeError | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"{self.facts.name}-reader", daemon=True)
        self._closed = False

    def start(self) -> None:
        """Begin to sample; returns when the first samples have come.

        Raises:
            ProbeReadError: the meter sends none.
        """
        self._meter.begin()
        self._thread.start()
        came = self._first.wait(FIRST_SAMPLE_TIMEOUT_S)
        if self._error is not None or not came:
            error = self._error or ProbeReadError(f"'{self.facts.name}' sent no sample in {FIRST_SAMPLE_TIMEOUT_S:g} s")
            self.stop()
            raise error

    def drain(self) -> dict[str, tuple[Array, Array]]:
        """Return and forget the samples so far; see `ipj_edge.protocols.PowerSampler`.

        Raises:
            ProbeReadError: the meter failed or was unplugged, or its clock cannot be right.
            SampleLossError: more than one sample in a thousand was lost.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            device_s, watts = self._store.take()
            excess, self._excess = self._excess, None
            times_s = self._timeline.host_times(device_s)
            drift = self._clock.drift
        if not self._thread.is_alive() and not self._stopping.is_set():
            raise ProbeReadError(f"'{self.facts.name}' is not sampling")
        if excess is not None:
            raise SampleLossError(self.facts.name, *excess)
        self._check_rate(drift)
        return {self.rails[0].name: (times_s, watts)}

    def stop(self) -> None:
        """End sampling, tell the meter so and release the port. Calling twice is allowed."""
        if self._closed:
            return
        self._closed = True
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self._meter.end()
        except ProbeError as error:
            logger.debug("%s: did not take the order to stop: %s", self.facts.name, error)
        self._meter.port.close()

    def _check_rate(self, drift: float | None) -> None:
        """Compare the meter's sample count with our clock: finds losses that no counter of the meter shows."""
        limit = self._meter.drift_limit
        if drift is None or limit is None or abs(drift) <= limit:
            return
        if drift > 0:
            second = round(self._meter.rate_hz)
            raise SampleLossError(self.facts.name, second, round(second / (1.0 + drift)))
        raise ProbeReadError(
            f"'{self.facts.name}' sends {1 / (1 + drift):.3f} times the samples its rate of "
            f"{self._meter.rate_hz:g} Hz gives: its clock or its setting is wrong"
        )

    def _read(self) -> None:
        last_s = time.monotonic()
        try:
            while not self._stopping.wait(self._meter.pace_s):
                data = self._meter.port.read(0.0)
                now_s = time.monotonic()
                if data:
                    last_s = now_s
                    self._take(self._meter.feed(data), now_s)
                elif now_s - last_s > SILENCE_LIMIT_S:
                    raise ProbeReadError(f"'{self.facts.name}' has sent nothing for {SILENCE_LIMIT_S:g} s")
        except ProbeError as error:
            with self._lock:
                self._error = error
            self._first.set()

    def _take(self, batch: SampleChunk, now_s: float) -> None:
        with self._lock:
            if batch.newest_s is not None:
                self._clock.observe(batch.newest_s, now_s)
            self._store.append(batch.device_s, batch.watts)
            if batch.expected:
                self._losses.add(batch.expected, batch.lost)
            if batch.lost and (excess := self._losses.excess()):
                self._excess = excess
        if len(batch.watts):
            self._first.set()


_: type[PowerSampler] = StreamSampler
