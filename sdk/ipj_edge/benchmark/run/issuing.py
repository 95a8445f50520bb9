"""The timed loop: issue queries and write down how long each took. Nothing else happens in here."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from time import perf_counter

import msgspec
import numpy as np

from ipj_edge.benchmark.result.latencies import Latencies
from ipj_edge.benchmark.run.queries import Query

Run = Callable[[Query], object]

# Samples are handed over in chunks, between two queries: 64 KiB of them.
_CHUNK = 8192


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """What was issued in one stretch.

    Attributes:
        queries: Queries answered.
        missed: Slots of a pace that went by while a query was still running.
    """

    queries: int
    missed: int = 0


def back_to_back(run: Run, queries: Sequence[Query], seconds: float, into: Sequence[Latencies]) -> Issued:
    """Issue a query whenever the last one is answered, for some seconds; at least one."""
    clock, size, count = perf_counter, len(queries), 0
    chunk = array("d")
    add, end = chunk.append, clock() + seconds
    while True:
        query = queries[count % size]
        start = clock()
        run(query)
        stop = clock()
        add(stop - start)
        count += 1
        if count % _CHUNK == 0:
            _hand_over(chunk, into)
        if stop >= end:
            _hand_over(chunk, into)
            return Issued(queries=count)


def paced(run: Run, queries: Sequence[Query], seconds: float, into: Sequence[Latencies], every_s: float) -> Issued:
    """Issue a query at every slot of a pace, for some seconds; at least one. The last slot's gap is waited for.

    A query still running when its next slot comes makes that slot a missed one, as a camera's frame would be lost:
    nothing queues up. Waiting is sleeping; it costs no CPU time.
    """
    clock, size, count = perf_counter, len(queries), 0
    chunk = array("d")
    slot = missed = 0
    begin = clock()
    while True:
        _sleep_until(begin + slot * every_s)
        query = queries[count % size]
        start = clock()
        run(query)
        stop = clock()
        chunk.append(stop - start)
        count += 1
        following = max(slot + 1, int(np.ceil((stop - begin) / every_s)))
        missed, slot = missed + following - slot - 1, following
        if count % _CHUNK == 0:
            _hand_over(chunk, into)
        if slot * every_s >= seconds:
            _hand_over(chunk, into)
            _sleep_until(begin + slot * every_s)
            return Issued(queries=count, missed=missed)


def _sleep_until(moment_s: float) -> None:
    wait_s = moment_s - perf_counter()
    if wait_s > 0:
        time.sleep(wait_s)


def _hand_over(chunk: array[float], into: Sequence[Latencies]) -> None:
    samples = np.frombuffer(chunk) if chunk else np.empty(0)
    for store in into:
        store.add(samples)
    # A numpy view keeps the array from being resized: let go of it first.
    del samples
    del chunk[:]
