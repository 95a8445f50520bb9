"""How often a sensor really updates, found by watching it: drivers and firmware differ, and many do not say."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

# Fewer changes than this give no trustworthy median.
CHANGES = 10


def measure_update_interval_s(
    read: Callable[[], float],
    *,
    timeout_s: float,
    poll_s: float = 0.001,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float | None:
    """Return the median seconds between changes of a sensor's value, or None where it did not change often
    enough.

    A power figure of a steady load may stand still although the sensor updates: None then, not a long interval.

    Args:
        read: Returns the sensor's raw value; its errors pass.
        timeout_s: Longest time to watch.
        poll_s: Seconds between two reads; the result is no finer than this.
        clock: Monotonic seconds.
        sleep: Waits for some seconds.
    """
    start_s = now_s = clock()
    last = read()
    changed_s: list[float] = []
    while len(changed_s) <= CHANGES and now_s - start_s < timeout_s:
        sleep(poll_s)
        value, now_s = read(), clock()
        if value != last:
            changed_s.append(now_s)
            last = value
    if len(changed_s) <= CHANGES:
        return None
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(changed_s))
