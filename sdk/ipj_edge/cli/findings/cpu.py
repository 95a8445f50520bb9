"""What ``ipj-edge doctor`` says about the CPUs: threads, 8-bit products, bfloat16, clocks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ipj_edge import host
from ipj_edge.cli.findings.finding import Finding

_ROOT = Path("/")
_TURBO_OFF = "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo (or 0 to …/cpufreq/boost)"


def collect(environment: Mapping[str, str], root: Path = _ROOT) -> list[Finding]:
    """Look at the CPUs.

    Args:
        environment: Environment variables, some of which engines heed.
        root: Where ``proc`` and ``sys`` are found.
    """
    return [threads(root), *asked_threads(environment, root), dot_products(root), *bfloat16(root), *clocks(root)]


def threads(root: Path = _ROOT) -> Finding:
    """Say how many threads fit, and what happens with more."""
    machine, usable, quota = os.cpu_count() or 1, host.affinity(), host.cpu_quota(root)
    fitting = host.default_threads(root)
    limited = "" if quota is None else f", the cgroup grants {quota:g}"
    detail = f"{machine} in the machine, {usable} usable{limited}: {fitting} inference threads by default"
    if fitting == machine:
        return Finding(subject="cpus", state="ok", detail=detail)
    return Finding(
        subject="cpus",
        state="note",
        detail=f"{detail}. An engine left alone counts the machine's CPUs, and threads beyond {fitting} only wait for "
        "each other or are throttled; ipj-edge sets the number explicitly",
        fix=f"leave out --threads, or give at most {fitting}",
    )


def asked_threads(environment: Mapping[str, str], root: Path = _ROOT) -> list[Finding]:
    """Find a number of threads in the environment that is more than fits."""
    asked, fitting = environment.get("OMP_NUM_THREADS", ""), host.default_threads(root)
    if not asked.isdigit() or int(asked) <= fitting:
        return []
    return [
        Finding(
            subject="OMP_NUM_THREADS",
            state="note",
            detail=f"asks for {asked} threads where {fitting} fit: numpy and OpenMP engines oversubscribe the CPUs",
            fix=f"export OMP_NUM_THREADS={fitting}",
        )
    ]


def dot_products(root: Path = _ROOT) -> Finding:
    """Say whether 8-bit products are exact and fast."""
    if host.has_vnni(root):
        return Finding(subject="8-bit dot products", state="ok", detail="exact and fast here")
    return Finding(
        subject="8-bit dot products",
        state="note",
        detail="no VNNI: pairs of products are summed in 16 bits, so int8 models made for VNNI saturate on onnxruntime "
        "without a word, and int8 gains little speed anywhere",
        fix="ipj-edge convert … --isa avx2",
    )


def bfloat16(root: Path = _ROOT) -> list[Finding]:
    """Say what openvino does with float models on a CPU that multiplies bfloat16."""
    if not host.has_bf16(root):
        return []
    return [
        Finding(
            subject="bfloat16",
            state="note",
            detail="this CPU multiplies bfloat16, so openvino computes float models in it unless told otherwise: "
            "answers differ from other CPUs in the third digit; fp32 and int8 bundles pin f32, bf16 bundles bf16",
            fix="in your own openvino code set INFERENCE_PRECISION_HINT to f32",
        )
    ]


def clocks(root: Path = _ROOT) -> list[Finding]:
    """Say what moves the CPUs' clocks under a measurement."""
    return [*_governor(root), *_turbo(root)]


def _governor(root: Path) -> list[Finding]:
    found = host.governors(root)
    if not found:
        return []
    if found == ("performance",):
        return [Finding(subject="clock governor", state="ok", detail="performance: clocks do not wait for load")]
    return [
        Finding(
            subject="clock governor",
            state="note",
            detail=f"{', '.join(found)}: clocks follow the load, so paced inferences look slower than they are and "
            "latencies scatter",
            fix="sudo cpupower frequency-set -g performance",
        )
    ]


def _turbo(root: Path) -> list[Finding]:
    on = host.turbo(root)
    if on is None:
        return []
    if not on:
        return [Finding(subject="turbo", state="ok", detail="off: clocks do not depend on heat")]
    return [
        Finding(
            subject="turbo",
            state="note",
            detail="on: clocks depend on heat and on what the other cores do; compare figures of one run only",
            fix=_TURBO_OFF,
        )
    ]
