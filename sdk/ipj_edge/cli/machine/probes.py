"""``ipj-edge probes``: every power probe, whether it works here, and what would make it work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ipj_edge.cli.options.probes import collect, probe_options

if TYPE_CHECKING:
    from ipj_edge.energy import ProbeReport


@click.command("probes")
@click.option("--describe", "name", metavar="NAME", help="Show one probe in full, with its rails.")
@click.option(
    "--json", "json_path", metavar="FILE", help="Write the list, or the probe described, as JSON; - is stdout."
)
@probe_options
def command(name: str | None, json_path: str | None, **given: Any) -> None:
    """List the power probes: available or not, why not, and the fix; boundary, update interval, accuracy,
    provenance.
    """
    from ipj_edge import plugins
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.energy import survey

    names = plugins.names(plugins.POWER_PROBES) if name is None else (name,)
    _console.check_json(json_path)
    options = collect(given, ("auto",) if name is None else names)
    reports = [survey(one, options) for one in names]
    if json_path is not None:
        _console.write_json(reports if name is None else reports[0], json_path)
    if json_path == "-":
        return
    if name is None:
        _show_all(reports)
    else:
        _show_one(reports[0])


def _show_all(reports: list[ProbeReport]) -> None:
    from ipj_edge.cli.printing import console as _console

    _console.table(("probe", "here", "boundary", "provenance", "update", "accuracy"), [_row(one) for one in reports])
    for report in reports:
        if not report.available:
            click.echo(f"{report.name}: {report.reason}")
            if report.fix:
                click.echo(f"    fix: {report.fix}")


def _row(report: ProbeReport) -> tuple[str, ...]:
    facts = report.facts
    known = ("", "", "", "")
    if facts is not None:
        known = (facts.boundary, facts.provenance, _seconds(facts.update_interval_s), _accuracy(facts.accuracy))
    return (report.name, "yes" if report.available else "no", *known)


def _show_one(report: ProbeReport) -> None:
    click.echo(f"{report.name}: {'available' if report.available else 'not available'}")
    for label, text in (("found" if report.available else "why", report.reason), ("fix", report.fix)):
        if text:
            click.echo(f"  {label}: {text}")
    facts = report.facts
    if facts is None:
        return
    click.echo(f"  boundary: {facts.boundary}")
    click.echo(f"  provenance: {facts.provenance}")
    click.echo(f"  update interval: {_seconds(facts.update_interval_s)}")
    click.echo(f"  energy step: {facts.quantum_j:.3g} J" if facts.quantum_j else "  energy step: none (gives power)")
    click.echo(f"  accuracy: {_accuracy(facts.accuracy)}")
    if facts.note:
        click.echo(f"  note: {facts.note}")
    for rail in report.rails:
        click.echo(f"  rail {rail.name} ({rail.boundary}): {'added' if rail.counted else 'shown, not added'}")


def _seconds(value: float) -> str:
    return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def _accuracy(value: float | None) -> str:
    return "not stated" if value is None else f"±{100 * value:.3g} %"
