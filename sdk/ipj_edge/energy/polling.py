"""A sampler for sensors that must be asked: one function that reads watts, polled by a thread.

For probe plugins: write the function, give it to `PolledSampler`, and return that from ``open``.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipj_edge.errors import ProbeError, ProbeReadError
from ipj_edge.protocols import PowerSampler
from ipj_edge.values import ProbeFacts, Rail

Array = NDArray[Any]


class PolledSampler:
    """A `PowerSampler` that calls a function at jittered intervals.

    The jitter keeps the polls from falling into step with work that repeats at the same period (aliasing). A
    sample's time is the middle of its read. A read that fails makes the next `drain` raise; polling goes on, so
    that later windows are good if the sensor comes back.
    """

    def __init__(
        self,
        facts: ProbeFacts,
        rails: Sequence[Rail],
        read: Callable[[], dict[str, float]],
        interval_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: float = 0.1,
        seed: int = 0,
    ) -> None:
        """Describe the sensor; nothing is read before `start`.

        Args:
            facts: What is known about its figures.
            rails: What it measures.
            read: Returns the watts of every rail; raises ProbeReadError or OSError, never returns 0 for unknown.
            interval_s: Mean seconds between two reads.
            clock: Monotonic seconds.
            jitter: Largest change of an interval, as a share of it, 0 to below 1.
            seed: Seed of the jitter.
        """
        self.facts = facts
        self.rails = tuple(rails)
        self._read, self._interval_s, self._clock, self._jitter = read, interval_s, clock, jitter
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._times: list[float] = []
        self._watts: dict[str, list[float]] = {rail.name: [] for rail in self.rails}
        self._failure: ProbeReadError | None = None

    def start(self) -> None:
        """Take a first sample and begin to poll; does nothing when polling already.

        Raises:
            ProbeReadError: the first read failed.
        """
        if self._thread is not None:
            return
        self._keep(*self._sample())
        self._stopped.clear()
        name = f"ipj-edge {self.facts.name}"
        self._thread = threading.Thread(target=self._poll, daemon=True, name=name)
        self._thread.start()

    def drain(self) -> dict[str, tuple[Array, Array]]:
        """Return and forget the samples so far; see `PowerSampler.drain`.

        Raises:
            ProbeReadError: a read failed since the last drain.
        """
        with self._lock:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            times, self._times = self._times, []
            watts, self._watts = self._watts, {rail.name: [] for rail in self.rails}
        times_s = np.asarray(times, dtype=np.float64)
        return {name: (times_s, np.asarray(values, dtype=np.float64)) for name, values in watts.items()}

    def stop(self) -> None:
        """End polling. Calling twice is allowed."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _poll(self) -> None:
        due_s = self._clock()
        while True:
            due_s += self._interval_s * (1 + self._random.uniform(-self._jitter, self._jitter))
            now_s = self._clock()
            if self._stopped.wait(max(0.0, due_s - now_s)):
                return
            # After a slow read the polls it cost are not made up for in a burst.
            due_s = max(due_s, now_s)
            try:
                sample = self._sample()
            except ProbeReadError as error:
                with self._lock:
                    self._failure = self._failure or error
            else:
                self._keep(*sample)

    def _sample(self) -> tuple[float, dict[str, float]]:
        before_s = self._clock()
        try:
            watts = self._read()
        except ProbeReadError:
            raise
        except (ProbeError, OSError) as error:
            raise ProbeReadError(f"'{self.facts.name}' cannot be read: {error}") from error
        missing = [rail.name for rail in self.rails if rail.name not in watts]
        if missing:
            raise ProbeReadError(f"'{self.facts.name}' gave no value for {', '.join(missing)}")
        return (before_s + self._clock()) / 2, watts

    def _keep(self, time_s: float, watts: dict[str, float]) -> None:
        with self._lock:
            self._times.append(time_s)
            for name, values in self._watts.items():
                values.append(watts[name])


_: type[PowerSampler] = PolledSampler
