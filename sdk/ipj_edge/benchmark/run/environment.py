"""The machine a result was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from ipj_edge import host

_ISA = {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "asimddp"}


def describe() -> dict[str, str]:
    """Return CPU, instruction sets, CPUs usable, quota, memory, governor, kernel and Python; not what is unknown."""
    import psutil

    quota = host.cpu_quota()
    facts = {
        "cpu": host.cpu_model(),
        "machine": platform.machine(),
        "isa": " ".join(sorted(host.cpu_flags() & _ISA)),
        "cpus": str(os.cpu_count()),
        "affinity": str(host.affinity()),
        "cpu_quota": "" if quota is None else f"{quota:g}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "governor": _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return {name: value for name, value in facts.items() if value}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
