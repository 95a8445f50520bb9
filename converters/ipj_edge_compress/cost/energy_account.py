"""Energy of long work, in laps: what was spent is known on the way, and survives a kill."""

from __future__ import annotations

import math
from pathlib import Path
from time import monotonic

import msgspec

from ipj_edge.energy import Meter, Window
from ipj_edge.values import Reading
from ipj_edge.writing import write_file

# Laps shorter than this are joined with the next: a probe has nothing to say of them.
_LEAST_LAP_S = 1.0


class EnergyAccount:
    """Adds up the energy of consecutive laps on the first probe of a meter.

    Laps touch: one begins where the one before ended. They are for progress and for a kill; when the work is done, one
    window over all of it takes their place, so that a last lap too short to be read loses nothing. Ends of intervals
    add linearly, for their error may be one.
    """

    def __init__(self, meter: Meter, name: str, kept: Path | None = None) -> None:
        """Begin the first lap.

        Args:
            meter: An open meter.
            name: What the work is called.
            kept: File that the laps are kept in; laps of an interrupted run in it count.
        """
        self._meter, self._name, self._kept = meter, name, kept
        self._laps: list[Reading] = []
        self._whole: Window = meter.window(name).__enter__()
        if kept is not None and kept.exists():
            self._laps = msgspec.json.decode(kept.read_bytes(), type=list[Reading])
        self._earlier = list(self._laps)
        self._began_s = monotonic()
        self._window: Window = meter.window(name).__enter__()

    def lap(self) -> Reading:
        """End the lap, unless it is very short, and return what was spent so far."""
        if monotonic() - self._began_s >= _LEAST_LAP_S:
            self._window.__exit__(None, None, None)
            self._laps.append(self._window.reading)
            self._keep()
            self._began_s = monotonic()
            self._window = self._meter.window(self._name).__enter__()
        return self.spent()

    def close(self) -> Reading:
        """End the work and return what was spent in all."""
        self._window.__exit__(None, None, None)
        self._whole.__exit__(None, None, None)
        self._laps = [*self._earlier, self._whole.reading]
        self._keep()
        return self.spent()

    def spent(self) -> Reading:
        """Return the sum of the laps that have ended."""
        return add_laps(self._laps) if self._laps else _nothing(self._meter)

    def _keep(self) -> None:
        if self._kept is not None:
            write_file(self._kept, msgspec.json.encode(self._laps))


def add_laps(laps: list[Reading]) -> Reading:
    """Add readings of consecutive laps on one probe; a lap without joules leaves the sum without joules."""
    missing = next((lap for lap in laps if lap.joules is None), None)
    strangers = {(lap.probe, lap.boundary, lap.provenance) for lap in laps}
    reason = f"one of {len(laps)} laps has none: {missing.reason}" if missing is not None else ""
    if len(strangers) > 1:
        reason = f"the laps were read on different probes: {', '.join(sorted(one[0] for one in strangers))}"
    ends = [(lap.low, lap.high) for lap in laps if lap.low is not None and lap.high is not None]
    known = not reason and len(ends) == len(laps)
    return msgspec.structs.replace(
        laps[-1],
        joules=None if reason else math.fsum(lap.joules for lap in laps if lap.joules is not None),
        reason=reason,
        seconds=math.fsum(lap.seconds for lap in laps),
        low=math.fsum(low for low, _ in ends) if known else None,
        high=math.fsum(high for _, high in ends) if known else None,
        rails={},
        coverage=min(lap.coverage for lap in laps),
    )


def _nothing(meter: Meter) -> Reading:
    facts = meter.facts[0]
    return Reading(
        joules=None,
        reason="the first lap has not ended",
        seconds=0.0,
        provenance=facts.provenance if facts else None,
        boundary=facts.boundary if facts else None,
        probe=facts.name if facts else "none",
        update_interval_s=facts.update_interval_s if facts else 0.0,
    )
