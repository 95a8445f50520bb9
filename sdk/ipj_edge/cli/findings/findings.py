"""What ``ipj-edge doctor`` looks at."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Literal

from ipj_edge.cli.findings import cpu as _cpu_findings
from ipj_edge.cli.findings.finding import Finding
from ipj_edge.cli.findings.looking import look_at
from ipj_edge.errors import PluginError
from ipj_edge.plugins import POWER_PROBES, TARGETS, load_probe, names
from ipj_edge.values import ProbeOptions


def collect() -> list[Finding]:
    """Look at the machine, the targets and the probes."""
    return [_python(), *_cpu_findings.collect(os.environ), *_twins(), *_targets(), *_probes()]


def _python() -> Finding:
    return Finding(
        subject="python", state="ok", detail=f"{platform.python_version()}, numpy {metadata.version('numpy')}"
    )


def _twins() -> list[Finding]:
    installed = [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]
    if len(installed) < 2:
        return []
    return [
        Finding(
            subject="onnxruntime",
            state="missing",
            detail="onnxruntime and onnxruntime-gpu are both installed and overwrite each other",
            fix="pip uninstall onnxruntime onnxruntime-gpu, then install the one you want",
        )
    ]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _targets() -> list[Finding]:
    found = [look_at(name) for name in names(TARGETS)]
    return [
        Finding(
            subject=f"target {name}",
            state="ok" if availability.available else "missing",
            detail=" ".join(filter(None, (availability.version, availability.reason))),
            fix=availability.fix,
        )
        for name, _, availability in found
    ]


def _probes() -> list[Finding]:
    findings = []
    for name in names(POWER_PROBES):
        try:
            availability = load_probe(name).availability(ProbeOptions())
        except PluginError as error:
            findings.append(Finding(subject=f"probe {name}", state="missing", detail=str(error)))
            continue
        state: Literal["ok", "note"] = "ok" if availability.available else "note"
        findings.append(Finding(subject=f"probe {name}", state=state, detail=availability.reason, fix=availability.fix))
    return findings
