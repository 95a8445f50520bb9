"""``ipj-edge compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ipj_edge.benchmark.compare.comparison import Check, Comparison

REGRESSED = 7
_ORDER = ("regression", "faster", "inconclusive", "not judged", "pass")


@click.command("compare")
@click.argument("base", type=click.Path())
@click.argument("new", type=click.Path())
@click.option(
    "--max-regression",
    "regressions",
    multiple=True,
    metavar="FIGURE=PERCENT",
    help="Allowed relative worsening, e.g. latency_s.p99=5%; =off turns a default off; repeatable.",
)
@click.option(
    "--max-drop",
    "drops",
    multiple=True,
    metavar="METRIC=POINTS",
    help="Allowed absolute drop of accuracy or of a metric's score, e.g. accuracy=0.5pp; repeatable.",
)
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["boundary", "provenance", "probe", "precision", "data", "missing"]),
    help="Compare although the two differ in this; repeatable.",
)
@click.option("--json", "json_path", metavar="FILE", help="Write the verdicts as JSON; - is stdout.")
@click.option("--markdown", "markdown_path", metavar="FILE", help="Write a table for a pull request; - is stdout.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
def command(base: str, new: str, **options: Any) -> int:
    """Fail with exit code 7 when NEW is worse than BASE, beyond its limits and beyond noise.

    \b
    ipj-edge compare base.json result.json
    ipj-edge compare base.json result.json --max-regression joules_per_inference=3% --max-drop accuracy=0.5pp

    Unless told otherwise: joules, CPU time, p50 and throughput 5 %, p99 20 %, size 10 %, accuracy 0.5pp.
    """
    from ipj_edge.benchmark.compare.comparison import Limits, compare
    from ipj_edge.benchmark.result.files import check_free, encode, read_result
    from ipj_edge.cli.printing.bench import put
    from ipj_edge.errors import DataError

    json_path, markdown_path = options["json_path"], options["markdown_path"]
    check_free([json_path, markdown_path], force=options["force"])
    if not Path(base).exists():
        raise DataError(f"there is no baseline at {base}: make one with `ipj-edge bench … --json {base}`")
    limits = Limits(
        regression=_limits(options["regressions"], "--max-regression", "%"),
        drop=_limits(options["drops"], "--max-drop", "pp"),
        allow=options["allow"],
    )
    comparison = compare(read_result(Path(base)), read_result(Path(new)), limits)
    put(json_path, lambda: encode(comparison))
    put(markdown_path, lambda: _markdown(comparison).encode())
    if "-" not in (json_path, markdown_path):
        _print(comparison)
    return REGRESSED if comparison.regressed else 0


def _limits(texts: tuple[str, ...], option: str, unit: str) -> dict[str, float | None]:
    from ipj_edge.errors import ConfigError
    from ipj_edge.units import quantity

    limits: dict[str, float | None] = {}
    for text in texts:
        name, equals, limit = text.partition("=")
        if not equals:
            raise ConfigError(f"{option} '{text}': expected FIGURE=LIMIT, e.g. {_example(unit)}")
        if limit == "off":
            limits[name] = None
            continue
        value, given = quantity(limit)
        if given != unit:
            raise ConfigError(f"{option} '{text}': the limit needs its unit, e.g. {_example(unit)}")
        limits[name] = value
    return limits


def _example(unit: str) -> str:
    return "latency_s.p99=5%" if unit == "%" else "accuracy=0.5pp"


def _print(comparison: Comparison) -> None:
    from ipj_edge.cli.printing import console as _console

    for note in comparison.notes:
        _console.warn(note)
    columns = ("verdict", "bundle", "figure", "baseline", "new", "change", "allowed", "")
    rows = [_row(check) for check in sorted(comparison.checks, key=lambda check: _ORDER.index(check.verdict))]
    _console.table(columns, rows, right=("baseline", "new", "change", "allowed"))
    failed = [check for check in comparison.checks if check.verdict == "regression"]
    judged = [check for check in comparison.checks if check.verdict != "not judged"]
    if failed:
        _console.say(f"{len(failed)} of {len(judged)} figures are worse than allowed")
    else:
        _console.say(f"no regression in {len(judged)} figures")


def _row(check: Check) -> tuple[str, ...]:
    return (check.verdict, check.bundle, check.figure, _value(check, check.base), _value(check, check.new),
            _change(check), _allowed(check), check.reason)  # fmt: skip


def _markdown(comparison: Comparison) -> str:
    marks = {"regression": "❌", "inconclusive": "⚠️", "faster": "⚠️", "pass": "✅", "not judged": "➖"}
    lines = [f"> {note}" for note in comparison.notes] + ([""] if comparison.notes else [])
    lines += ["| | bundle | figure | baseline | new | change | allowed | |", "|---|---|---|--:|--:|--:|--:|---|"]
    for check in comparison.checks:
        _, *cells = _row(check)
        lines.append(f"| {marks[check.verdict]} {check.verdict} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _value(check: Check, value: float | None) -> str:
    from ipj_edge.benchmark.result.figures import FIGURES

    if value is None:
        return "—"
    return FIGURES[check.figure].text(value) if check.figure in FIGURES else f"{value:.4g}"


def _change(check: Check) -> str:
    if check.change is None:
        return "—"
    if check.is_drop:
        return f"{-100 * check.change:+.2f}pp" if check.change else "0pp"
    # Above 0 is worse: of a figure where higher is better, show how much lower it is.
    ends = "" if check.low is None or check.high is None else f" ({100 * check.low:+.1f} to {100 * check.high:+.1f})"
    return f"{100 * check.change:+.1f} % worse{ends}" if check.change > 0 else f"{100 * check.change:+.1f} %{ends}"


def _allowed(check: Check) -> str:
    return f"{100 * check.limit:g}pp" if check.is_drop else f"{100 * check.limit:g} %"
