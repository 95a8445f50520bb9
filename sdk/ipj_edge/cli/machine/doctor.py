"""``ipj-edge doctor``."""

from __future__ import annotations

import click


@click.command("doctor")
@click.option("--json", "json_path", metavar="FILE", help="Write the findings as JSON; - is stdout.")
def command(json_path: str | None) -> None:
    """Check this machine: CPUs, instruction set, targets, probes; say how to mend what does not work."""
    from ipj_edge.cli.findings import findings as _findings
    from ipj_edge.cli.printing import console as _console

    findings = _findings.collect()
    if json_path is not None:
        _console.write_json(findings, json_path)
    if json_path != "-":
        rows = [(finding.subject, finding.state, finding.detail, finding.fix) for finding in findings]
        _console.table(("what", "state", "found", "to mend it"), rows)
