"""Energy counters that only rise: joules since they were opened, and on from there after a reset."""

from __future__ import annotations

from collections.abc import Mapping

from ipj_edge.errors import ProbeReadError


class RisingCounts:
    """Joules by rail since the first count.

    The counters behind it have 64 bits and do not wrap: one that goes back was reset. What it counted meanwhile is
    lost, so that read fails; the count goes on from there, so that later windows are good.
    """

    def __init__(self, first_j: Mapping[str, float], cause: str) -> None:
        """Begin to count.

        Args:
            first_j: What the counters say now, in joules by rail.
            cause: What resets them, for the message.
        """
        self._last_j, self._cause = dict(first_j), cause
        self._total_j = dict.fromkeys(first_j, 0.0)

    def since(self, now_j: Mapping[str, float]) -> dict[str, float]:
        """Return the joules of every rail since the first count.

        Args:
            now_j: What the counters say now, in joules by rail.

        Raises:
            ProbeReadError: a counter went back.
        """
        last_j, self._last_j = self._last_j, dict(now_j)
        fallen = [rail for rail, value_j in now_j.items() if value_j < last_j[rail]]
        for rail in now_j.keys() - fallen:
            self._total_j[rail] += now_j[rail] - last_j[rail]
        if fallen:
            rail = fallen[0]
            raise ProbeReadError(
                f"the energy counter of {rail} went back from {last_j[rail]:g} J to {now_j[rail]:g} J: {self._cause}, "
                "so the energy of this window is not known"
            )
        return dict(self._total_j)
