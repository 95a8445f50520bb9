"""``ipj-edge pareto``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ipj_edge.benchmark import Entry
    from ipj_edge.benchmark.compare.pareto import Candidate, Group

NOT_REACHED = 5


@click.command("pareto")
@click.argument("results", nargs=-1, required=True, type=click.Path())
@click.option("--max", "most", multiple=True, metavar="FIGURE=LIMIT", help="Upper limit, e.g. latency_s.p99=20ms.")
@click.option("--min", "least", multiple=True, metavar="FIGURE=LIMIT", help="Lower limit, e.g. accuracy=90%.")
@click.option("--json", "json_path", metavar="FILE", help="Write the choice as JSON; - is stdout.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(results: tuple[str, ...], **options: Any) -> int:
    """Show the front of accuracy against joules, and the fewest joules per correct answer within limits.

    \b
    ipj-edge pareto result.json --max latency_s.p99=20ms --min accuracy=90%

    Modelled and measured joules, and joules of different boundaries, are never ranked together. Exit code 5 when
    nothing meets the limits.
    """
    from ipj_edge.benchmark.compare.pareto import rank
    from ipj_edge.benchmark.result.files import check_free, encode, read_result
    from ipj_edge.cli.printing.bench import put
    from ipj_edge.errors import DataError

    json_path = options["json_path"]
    check_free([json_path], force=options["force"])
    entries = [entry for path in results for entry in read_result(Path(path)).results]
    if not entries:
        raise DataError("the results hold no entries")
    most, least = _limits(options["most"], "--max", entries), _limits(options["least"], "--min", entries)
    groups = rank(entries, most=most, least=least)
    put(json_path, lambda: encode([_record(group) for group in groups]))
    if json_path != "-":
        for group in groups:
            _print(group)
    return 0 if any(group.chosen for group in groups) else NOT_REACHED


def _limits(texts: tuple[str, ...], option: str, entries: Sequence[Entry]) -> dict[str, float]:
    from ipj_edge.benchmark.result.figures import figure_named, read_limit
    from ipj_edge.errors import ConfigError

    limits = {}
    for text in texts:
        name, equals, limit = text.partition("=")
        if not equals:
            raise ConfigError(f"{option} '{text}': expected FIGURE=LIMIT, e.g. latency_s.p99=20ms or accuracy=90%")
        limits[name] = read_limit(figure_named(name, *entries), limit)
    return limits


def _record(group: Group) -> dict[str, Any]:
    from ipj_edge.benchmark.compare.pareto import names_of
    from ipj_edge.benchmark.result.pairs import title

    chosen = group.chosen
    return {
        "provenance": group.provenance,
        "boundary": group.boundary,
        "chosen": None if chosen is None else title(chosen),
        "joules_per_correct": None if chosen is None else chosen.joules_per_correct,
        "front": names_of(group),
        "left_out": {title(one.entry): "; ".join((*one.misses, one.reason)).strip("; ") for one in group.candidates
                     if one.misses or one.reason},
    }  # fmt: skip


def _print(group: Group) -> None:
    from ipj_edge.benchmark.result.pairs import title
    from ipj_edge.cli.printing import console as _console

    _console.say(f"{group.provenance} joules, boundary {group.boundary}" if group.provenance else "no joules")
    columns = ("", "bundle", "accuracy", "J/inf", "J/correct", "p99", "")
    ranked = sorted(group.candidates, key=_order)
    rows = [_row(one, chosen=one.entry is group.chosen) for one in ranked]
    _console.table(columns, rows, right=("accuracy", "J/inf", "J/correct", "p99"))
    if group.chosen is None:
        _console.say("nothing meets the limits")
    else:
        _console.say(f"chosen: {title(group.chosen)}")


def _order(one: Candidate) -> tuple[bool, float]:
    return not one.on_front, one.entry.joules_per_correct.value if one.entry.joules_per_correct else float("inf")


def _row(one: Candidate, *, chosen: bool) -> tuple[str, ...]:
    from ipj_edge.benchmark.result.pairs import title
    from ipj_edge.units import joules_text, seconds_text

    entry, energy = one.entry, one.entry.joules_per_inference
    return (
        "chosen" if chosen else "front" if one.on_front else "",
        title(entry),
        "—" if entry.accuracy is None else f"{100 * entry.accuracy.value:.2f} %",
        "—" if energy.value is None else joules_text(energy.value),
        "—" if entry.joules_per_correct is None else joules_text(entry.joules_per_correct.value),
        seconds_text(entry.latency_s.p99),
        "; ".join((*one.misses, *([one.reason] if one.reason else []))),
    )
