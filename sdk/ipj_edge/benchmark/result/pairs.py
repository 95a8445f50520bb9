"""Which entry of a new result belongs to which of a baseline, and what stands in the way of comparing them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ipj_edge.benchmark.result.schema import Entry
from ipj_edge.benchmark.result.tables import mode_text
from ipj_edge.errors import DataError

Difference = Literal["boundary", "provenance", "probe", "precision", "data", "missing"]
_Key = tuple[object, ...]


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the baseline and the one of the new result that belongs to it."""

    base: Entry
    new: Entry


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs, and the entries that have no partner."""

    pairs: tuple[Pair, ...]
    only_base: tuple[Entry, ...]
    only_new: tuple[Entry, ...]


def pair_up(base: Iterable[Entry], new: Iterable[Entry]) -> Pairing:
    """Pair entries by model and target, scenario and settings; by precision where both results have it.

    Raises:
        DataError: a result holds two entries for the same thing.
    """
    left, right = _by_key(base, "the baseline"), _by_key(new, "the new result")
    same = [Pair(base=entry, new=right.pop(key)) for key, entry in left.items() if key in right]
    rest = {key: entry for key, entry in left.items() if not any(entry is pair.base for pair in same)}
    across = []
    for key, entry in list(rest.items()):
        candidates = [other for other in right if other[:-1] == key[:-1]]
        rivals = [other for other in rest if other[:-1] == key[:-1]]
        if len(candidates) == 1 and len(rivals) == 1:
            across.append(Pair(base=entry, new=right.pop(candidates[0])))
            del rest[key]
    return Pairing(pairs=(*same, *across), only_base=tuple(rest.values()), only_new=tuple(right.values()))


def differences(pair: Pair) -> dict[Difference, str]:
    """Return what makes the two figures mean different things, in words."""
    base, new = pair.base, pair.new
    found: dict[Difference, str] = {}
    if _precision(base) != _precision(new):
        found["precision"] = f"{_precision(base)} against {_precision(new)}"
    if base.data_sha256 and new.data_sha256 and base.data_sha256 != new.data_sha256:
        found["data"] = f"data {base.data_sha256[:8]}… against {new.data_sha256[:8]}…"
    mine, its = base.joules_per_inference, new.joules_per_inference
    if mine.value is not None and its.value is not None:
        if mine.boundary != its.boundary:
            found["boundary"] = f"joules of the {mine.boundary} against the {its.boundary}"
        if mine.provenance != its.provenance:
            found["provenance"] = f"{mine.provenance} joules against {its.provenance}"
        if not found.keys() & {"boundary", "provenance"} and mine.probe != its.probe:
            # The gain error of a probe cancels against its own alone.
            found["probe"] = f"joules by {mine.probe} against joules by {its.probe}"
    elif mine.value is not None:
        found["missing"] = f"the new result has no joules ({its.reason})"
    return found


def title(entry: Entry) -> str:
    """Return what an entry is called: bundle, scenario, settings."""
    return f"{entry.bundle} ({mode_text(entry)})"


def _precision(entry: Entry) -> str:
    executed = {effective.execution_precision for effective in entry.effective}
    return " ".join([entry.precision, *sorted(executed)])


def _by_key(entries: Iterable[Entry], where: str) -> dict[_Key, Entry]:
    found: dict[_Key, Entry] = {}
    for entry in entries:
        key = _key(entry)
        if key in found:
            raise DataError(f"{where} holds two entries for {title(entry)}: which one counts is not clear")
        found[key] = entry
    return found


def _key(entry: Entry) -> _Key:
    stem = entry.bundle.removesuffix(".ipj").removesuffix(f".{entry.precision}")
    settings = entry.requested.threads, entry.requested.spinning, entry.early_exit
    return stem, entry.target, entry.scenario, entry.samples_per_query, entry.every_s, *settings, entry.precision
