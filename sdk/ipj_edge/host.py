"""Facts about the machine this process runs on: CPUs it may use, quota, instruction set."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path


def affinity() -> int:
    """Return how many logical CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPUs the cgroup grants (v2 ``cpu.max``, v1 ``cpu.cfs_quota_us``), or None without a quota.

    Args:
        root: Where ``proc`` and ``sys`` are found.
    """
    quotas = [quota for folder in _cgroup_folders(root) if (quota := _folder_quota(folder)) is not None]
    return min(quotas) if quotas else None


def default_threads(root: Path = Path("/")) -> int:
    """Return min(affinity, cgroup quota rounded down), at least 1: more threads only wait for each other."""
    quota = cpu_quota(root)
    limit = affinity() if quota is None else min(affinity(), math.floor(quota))
    return max(1, limit)


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process could still use: of the machine, or of its cgroup if less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    left = [more for folder in _cgroup_folders(root, "memory") if (more := _folder_memory(folder)) is not None]
    return max(0, min([free, *left]))


def cpu_flags(root: Path = Path("/")) -> frozenset[str]:
    """Return the CPU's feature flags as Linux lists them, empty where that is not known."""
    return frozenset(_cpuinfo(root, ("flags", "Features")).split())


def cpu_model(root: Path = Path("/")) -> str:
    """Return the CPU's name as Linux gives it, empty where that is not known."""
    return _cpuinfo(root, ("model name", "Model"))


def has_vnni(root: Path = Path("/")) -> bool:
    """Say whether 8-bit dot products are exact here (VNNI on x86, always true on Arm)."""
    flags = cpu_flags(root)
    return bool(flags & {"avx512_vnni", "avx_vnni"}) or os.uname().machine in ("aarch64", "arm64")


def has_bf16(root: Path = Path("/")) -> bool:
    """Say whether the CPU multiplies bfloat16 itself, which openvino then does with float models by default."""
    return bool(cpu_flags(root) & {"avx512_bf16", "amx_bf16", "bf16"})


def governors(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the frequency governors of the CPUs, each once; empty where the kernel does not show them."""
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({text for file in files if (text := _text(file))}))


def turbo(root: Path = Path("/")) -> bool | None:
    """Say whether CPUs may clock above their nominal frequency; None where the kernel does not show it."""
    cpu = root / "sys/devices/system/cpu"
    no_turbo, boost = _text(cpu / "intel_pstate/no_turbo"), _text(cpu / "cpufreq/boost")
    if no_turbo in ("0", "1"):
        return no_turbo == "0"
    return boost == "1" if boost in ("0", "1") else None


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _cpuinfo(root: Path, keys: tuple[str, ...]) -> str:
    try:
        text = (root / "proc/cpuinfo").read_text()
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in keys:
            return value.strip()
    return ""


def _cgroup_folders(root: Path, controller: str = "cpu") -> list[Path]:
    """Return the folders, from this process's cgroup up to the top, that may carry a controller's limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mount = root / "sys/fs/cgroup"
        if controllers:
            if controller not in controllers.split(","):
                continue
            mount = mount / controller
        inner = mount / path.lstrip("/")
        folders += [folder for folder in (inner, *inner.parents) if folder.is_relative_to(mount)]
    return folders


def _folder_quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
            return None if quota == "max" else int(quota) / int(period)
        if (folder / "cpu.cfs_quota_us").exists():
            quota_us = int((folder / "cpu.cfs_quota_us").read_text())
            period_us = int((folder / "cpu.cfs_period_us").read_text())
            return quota_us / period_us if quota_us > 0 else None
    except (OSError, ValueError):
        return None
    return None


def _folder_memory(folder: Path) -> int | None:
    """Return the bytes a cgroup may still use; its file cache gives way. None without a limit (v2 and v1)."""
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError):
            most = int((folder / limit).read_text())
            rows = dict(row.split() for row in (folder / "memory.stat").read_text().splitlines())
            return most - int((folder / used).read_text()) + int(rows.get(cache, 0))
    return None
