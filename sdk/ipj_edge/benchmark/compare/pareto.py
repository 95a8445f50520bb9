"""Which entries are worth choosing: the front of accuracy against joules, and the best that meets given limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from ipj_edge.benchmark.result.figures import Figure, figure_named
from ipj_edge.benchmark.result.pairs import title
from ipj_edge.benchmark.result.schema import Entry, energy_kind
from ipj_edge.values import Boundary, Provenance


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as a choice.

    Attributes:
        entry: The entry.
        on_front: No other entry of its group is at least as accurate for no more joules.
        misses: The limits it does not meet, in words; empty when it meets all.
        reason: Why it cannot be ranked; empty when it can.
    """

    entry: Entry
    on_front: bool
    misses: tuple[str, ...] = ()
    reason: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Entries whose joules mean the same: one provenance and one boundary; None of both where nothing is known.

    Attributes:
        chosen: The entry with the fewest joules per correct answer that meets every limit; None where none does.
    """

    provenance: Provenance | None
    boundary: Boundary | None
    candidates: tuple[Candidate, ...]
    chosen: Entry | None


class _Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with the most or the least it may be."""

    figure: Figure
    most: float = math.inf
    least: float = -math.inf

    def missed_by(self, entry: Entry) -> str:
        """Say how an entry misses it; an empty text when it does not."""
        name, text, value = self.figure.name, self.figure.text, self.figure.value(entry)
        if value is None:
            return f"no {name}"
        if value > self.most:
            return f"{name} {text(value)} is above {text(self.most)}"
        return f"{name} {text(value)} is below {text(self.least)}" if value < self.least else ""


def rank(
    entries: Sequence[Entry], *, most: Mapping[str, float] | None = None, least: Mapping[str, float] | None = None
) -> tuple[Group, ...]:
    """Group entries by what their joules are, find the front of each group and choose.

    Args:
        entries: Entries of one or several results.
        most: Upper limits by figure.
        least: Lower limits by figure.

    Raises:
        ConfigError: an unknown figure.
    """
    limits = [_Limit(figure=figure_named(name, *entries), most=limit) for name, limit in (most or {}).items()]
    limits += [_Limit(figure=figure_named(name, *entries), least=limit) for name, limit in (least or {}).items()]
    kinds = dict.fromkeys(energy_kind(entry) for entry in entries)
    # Measured figures first: they are the ones to decide by.
    return tuple(
        _group([entry for entry in entries if energy_kind(entry) == kind], kind, limits)
        for kind in sorted(kinds, key=lambda kind: (kind[0] != "measured", str(kind[0]), str(kind[1])))
    )


def _group(
    entries: Sequence[Entry], kind: tuple[Provenance | None, Boundary | None], limits: Sequence[_Limit]
) -> Group:
    candidates = tuple(
        Candidate(
            entry=entry,
            on_front=not _why_not(entry) and not any(_beats(other, entry) for other in entries),
            misses=tuple(_misses(entry, limits)),
            reason=_why_not(entry),
        )
        for entry in entries
    )
    able = [one.entry for one in candidates if not one.misses and not one.reason]
    chosen = min(
        able, key=lambda entry: entry.joules_per_correct.value if entry.joules_per_correct else 0.0, default=None
    )
    return Group(provenance=kind[0], boundary=kind[1], candidates=candidates, chosen=chosen)


def _why_not(entry: Entry) -> str:
    if entry.joules_per_inference.value is None:
        return f"no joules: {entry.joules_per_inference.reason}"
    if entry.accuracy is None:
        return f"no accuracy: {entry.accuracy_reason}"
    return "" if entry.joules_per_correct else "no correct answer"


def _beats(other: Entry, entry: Entry) -> bool:
    """Say whether other is no worse in both and better in one."""
    if _why_not(other) or _why_not(entry):
        return False
    theirs, ours = _point(other), _point(entry)
    return theirs != ours and theirs[0] <= ours[0] and theirs[1] <= ours[1]


def _point(entry: Entry) -> tuple[float, float]:
    accuracy, joules = entry.accuracy, entry.joules_per_inference.value
    assert accuracy is not None
    assert joules is not None
    return joules, -accuracy.value


def _misses(entry: Entry, limits: Sequence[_Limit]) -> list[str]:
    return [missed for limit in limits if (missed := limit.missed_by(entry))]


def names_of(group: Group) -> tuple[str, ...]:
    """Return the titles on the front, cheapest first."""
    front = [one.entry for one in group.candidates if one.on_front]
    return tuple(title(entry) for entry in sorted(front, key=_point))
