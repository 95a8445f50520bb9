from pathlib import Path

import pytest

from ipj_edge import host


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_version_2_quota_is_read_from_the_process_cgroup(tmp_path: Path) -> None:
    root = _tree(tmp_path, {"proc/self/cgroup": "0::/box\n", "sys/fs/cgroup/box/cpu.max": "150000 100000\n"})
    assert host.cpu_quota(root) == 1.5


def test_the_tightest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n",
        "sys/fs/cgroup/outer/cpu.max": "200000 100000\n",
    }
    assert host.cpu_quota(_tree(tmp_path, files)) == 2.0


def test_a_version_1_quota_is_read_and_minus_one_means_none(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/box\n",
        "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert host.cpu_quota(_tree(tmp_path, files)) == 0.5


def test_without_a_cgroup_there_is_no_quota(tmp_path: Path) -> None:
    assert host.cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "threads"), [("50000 100000", 1), ("100000 100000", 1), ("max 100000", None)])
def test_default_threads_are_at_least_one_and_at_most_the_quota(
    tmp_path: Path, quota: str, threads: int | None
) -> None:
    root = _tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota})
    assert host.default_threads(root) == (threads if threads is not None else host.affinity())


def test_cpu_flags_and_model_come_from_cpuinfo(tmp_path: Path) -> None:
    root = _tree(tmp_path, {"proc/cpuinfo": "model name\t: A CPU\nflags\t\t: sse avx2 avx512_vnni\n"})
    assert host.cpu_flags(root) == {"sse", "avx2", "avx512_vnni"}
    assert host.cpu_model(root) == "A CPU"
    assert host.has_vnni(root)


def test_available_memory_is_what_the_cgroup_leaves(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/work\n")
    folder = tmp_path / "sys/fs/cgroup/work"
    folder.mkdir(parents=True)
    for name, text in {"max": "3000000\n", "current": "2000000\n", "stat": "anon 5\ninactive_file 500000\n"}.items():
        (folder / f"memory.{name}").write_text(text)
    assert host.available_memory(tmp_path) == 1_500_000
    (folder / "memory.max").write_text("max\n")
    assert host.available_memory(tmp_path) > 1_500_000
