"""What doctor says about the CPUs, on fake trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipj_edge import host
from ipj_edge.cli.findings import cpu as _cpu_findings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty machine."""
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def flags(root: Path, text: str) -> None:
    put(root, "proc/cpuinfo", f"processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: {text}\n")


def subjects(root: Path, environment: dict[str, str] | None = None) -> dict[str, str]:
    return {finding.subject: finding.state for finding in _cpu_findings.collect(environment or {}, root)}


def test_a_quota_is_explained_with_what_more_threads_do(root, monkeypatch):
    monkeypatch.setattr(host, "affinity", lambda: 8)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    put(root, "proc/self/cgroup", "0::/app\n")
    put(root, "sys/fs/cgroup/app/cpu.max", "150000 100000\n")
    finding = _cpu_findings.threads(root)
    assert finding.state == "note"
    assert "8 in the machine, 8 usable, the cgroup grants 1.5: 1 inference threads" in finding.detail
    assert "throttled" in finding.detail
    assert finding.fix.endswith("at most 1")


def test_a_version_1_quota_counts_as_well(root, monkeypatch):
    monkeypatch.setattr(host, "affinity", lambda: 4)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    put(root, "proc/self/cgroup", "3:cpu,cpuacct:/box\n")
    put(root, "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "200000\n")
    put(root, "sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n")
    assert "2 inference threads" in _cpu_findings.threads(root).detail


def test_a_machine_that_is_all_ours_needs_no_advice(root, monkeypatch):
    monkeypatch.setattr(host, "affinity", lambda: 4)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert _cpu_findings.threads(root).state == "ok"


@pytest.mark.parametrize(("asked", "told"), [("64", True), ("1", False), ("", False), ("all", False)])
def test_too_many_openmp_threads_are_told(root, monkeypatch, asked, told):
    monkeypatch.setattr(host, "affinity", lambda: 2)
    assert ("OMP_NUM_THREADS" in subjects(root, {"OMP_NUM_THREADS": asked})) is told


@pytest.mark.parametrize(
    ("text", "state"), [("avx2 avx512f", "note"), ("avx2 avx512_vnni", "ok"), ("avx2 avx_vnni", "ok")]
)
def test_missing_vnni_is_told_with_the_option_that_helps(root, monkeypatch, text, state):
    monkeypatch.setattr("os.uname", lambda: type("uname", (), {"machine": "x86_64"}))
    flags(root, text)
    finding = _cpu_findings.dot_products(root)
    assert finding.state == state
    assert ("--isa avx2" in finding.fix) is (state == "note")


@pytest.mark.parametrize(("text", "told"), [("avx512f", False), ("amx_bf16", True), ("avx512_bf16", True)])
def test_openvino_s_default_of_bfloat16_is_told_where_it_applies(root, text, told):
    flags(root, text)
    assert ("bfloat16" in subjects(root)) is told


@pytest.mark.parametrize(("governor", "state"), [("performance", "ok"), ("powersave", "note"), ("schedutil", "note")])
def test_the_governor_is_told(root, governor, state):
    for cpu in (0, 1):
        put(root, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", f"{governor}\n")
    assert subjects(root)["clock governor"] == state


def test_different_governors_are_all_named(root):
    put(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    put(root, "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n")
    (finding,) = _cpu_findings.clocks(root)
    assert "performance, powersave" in finding.detail


@pytest.mark.parametrize(
    ("file", "text", "state"),
    [
        ("intel_pstate/no_turbo", "0", "note"),
        ("intel_pstate/no_turbo", "1", "ok"),
        ("cpufreq/boost", "1", "note"),
        ("cpufreq/boost", "0", "ok"),
    ],
)
def test_turbo_is_told(root, file, text, state):
    put(root, f"sys/devices/system/cpu/{file}", f"{text}\n")
    assert subjects(root)["turbo"] == state


def test_what_the_kernel_does_not_show_is_not_guessed(root):
    assert host.governors(root) == ()
    assert host.turbo(root) is None
    assert not {"clock governor", "turbo"} & set(subjects(root))
