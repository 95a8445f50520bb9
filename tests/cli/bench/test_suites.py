"""Suites: every combination, in turn, and nothing lost to a kill."""

import os
import signal
import subprocess

import pytest
from command_line import ended, lines_until

from ipj_edge.benchmark import BenchOptions
from ipj_edge.benchmark.result.files import read_result
from ipj_edge.benchmark.suite.file import load_suite
from ipj_edge.errors import ConfigError

SUITE = """
rounds = 2
windows = 4
window = "50ms"
error = "90%"
data = "data.npz"

[[sweep]]
bundles = ["dist/*.ipj"]
scenarios = ["single-stream", "offline"]
batch = [4, 8]
threads = [1, 2]
"""


@pytest.fixture
def suite(spin_bundle, labelled, tmp_path):
    """A suite of two bundles and twelve cells."""
    spin_bundle(tmp_path / "dist", spin_s=0.002)
    spin_bundle(tmp_path / "dist", spin_s=0.001, precision="int8")
    (tmp_path / "suite.toml").write_text(SUITE)
    return tmp_path / "suite.toml"


def test_a_sweep_is_every_combination_that_makes_sense(suite):
    loaded = load_suite(suite, BenchOptions())
    assert len(loaded.cells) == 2 * 2 * (1 + 2)
    assert {cell.scenario.samples_per_query for cell in loaded.cells} == {None, 4, 8}
    assert {cell.options.settings.threads for cell in loaded.cells} == {1, 2}
    suite.write_text(SUITE + 'precisions = ["int8"]\n')
    assert len(load_suite(suite, BenchOptions()).cells) == 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "required field `sweep`"),
        ("[[sweep]]\nbundles = []", "come to nothing"),
        ('[[sweep]]\nbundles = ["none/*.ipj"]', "no bundle matches"),
        ('[[sweep]]\nbundles = ["dist/*.ipj"]\nspeed = 3', "line 3 sweep 1: unknown key 'speed'"),
        (
            '[[sweep]]\nbundles = ["dist/*.ipj"]\nscenarios = ["server"]',
            "line 3 sweep 1: scenarios: Invalid enum value 'server'",
        ),
        ('error = "5"\n[[sweep]]\nbundles = ["dist/*.ipj"]', "percentage with its unit"),
        ('window = "5 kg"\n[[sweep]]\nbundles = ["dist/*.ipj"]', "a number with a unit"),
        ('rounds = 0\n[[sweep]]\nbundles = ["dist/*.ipj"]', "from 1 to 1,000"),
        ('[[sweep]]\nbundles = ["dist/*.ipj"]\n[[sweep]]\nbundles = ["dist/*.ipj"]', "same cell"),
        ("[[sweep", "cannot read the suite"),
        # A gate that can never close, or closes on the better models, is no gate.
        ('[[sweep]]\nbundles = ["dist/*.ipj"]\nat_least = { "top-1" = "90" }', "unit is one of %"),
        ('[[sweep]]\nbundles = ["dist/*.ipj"]\nat_least = { "top-1" = "90ms" }', "unit is one of %"),
        ('[[sweep]]\nbundles = ["dist/*.ipj"]\nat_least = { "top-on" = "90%" }', "unknown metric 'top-on'"),
        ('[[sweep]]\nbundles = ["dist/*.ipj"]\nat_least = { "auc" = "90%" }', "not among the metrics"),
        ('[[sweep]]\nbundles = ["dist/*.ipj"]\nat_least = { "latency_s.p99" = "20ms" }', "less is better"),
    ],
)
def test_a_suite_that_cannot_be_used_says_why(suite, text, said):
    suite.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_suite(suite, BenchOptions())


def test_a_target_goes_by_the_name_that_the_result_has(suite):
    suite.write_text('[[sweep]]\nbundles = ["dist/*.ipj"]\nmetrics = ["top1"]\nat_least = { "top1" = "90%" }')
    assert {tuple(cell.at_least.items()) for cell in load_suite(suite, BenchOptions()).cells} == {(("top-1", 0.9),)}


def test_a_target_that_cannot_be_judged_is_not_met(suite, tmp_path, ipj_edge_cli):
    bundles = '[[sweep]]\nbundles = ["dist/work.spin-cpu.fp32.ipj"]\nat_least = { "top-1" = "1%" }'
    suite.write_text(f'rounds = 1\nwindows = 1\nwindow = "20ms"\nerror = "90%"\n{bundles}')
    ran = ipj_edge_cli("bench", "--suite", suite, "--probe", "none", "--json", tmp_path / "r.json")
    assert "not judged: no labels were given" in ran.out
    assert ran.code == 5, ran


def test_an_option_that_the_suite_decides_is_refused(suite, tmp_path, ipj_edge_cli):
    options = ("--windows", "20", "--data", "other.npz", "--threads", "1")
    ran = ipj_edge_cli("bench", "--suite", suite, *options, "--json", tmp_path / "r.json")
    assert ran.code == 2, ran
    assert "--data, --windows: with --suite, the suite's file says that" in ran.err


def test_a_suite_runs_in_turns_and_leaves_one_result(suite, tmp_path, ipj_edge_cli):
    out = tmp_path / "r.json"
    ran = ipj_edge_cli("bench", "--suite", suite, "--probe", "modelled", "--json", out, "--csv", tmp_path / "r.csv")
    assert ran.code == 0, ran
    result = read_result(out)
    assert len(result.results) == 12
    for entry in result.results:
        assert len(entry.windows) == 4
        assert entry.accuracy.value == pytest.approx(0.9)
        starts = [window.start_s for window in entry.windows]
        assert starts == sorted(starts)
    lines = [line for line in ran.err.splitlines() if line.startswith("· [")]
    assert len(lines) == 24
    assert "left" in lines[0]
    # A B … A B …: the first round of every cell comes before the second of any.
    names = [line.split("] ")[1].rsplit(":", 1)[0] for line in lines]
    assert names[:12] == names[12:]
    assert len(set(names[:12])) == 12
    assert not (tmp_path / "r.json.cells").exists()
    again = ipj_edge_cli("bench", "--suite", suite, "--json", out)
    assert again.code == 2
    assert "--force" in again.err


@pytest.fixture
def start(start_ipj_edge):
    """Return a function that starts a suite in a process that can be interrupted."""

    def run(suite, out):
        return start_ipj_edge(
            "bench", "--suite", suite, "--probe", "modelled", "--json", out,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return run


def _wait_for(child, count):
    for _ in range(count):
        lines_until(child, child.stderr, "· [")


def test_a_killed_suite_resumes_with_nothing_lost(suite, start, tmp_path, ipj_edge_cli):
    out, cells = tmp_path / "r.json", tmp_path / "r.json.cells"
    child = start(suite, out)
    _wait_for(child, 5)
    child.kill()
    ended(child)
    assert not out.exists()
    # Half a file of the cell that was interrupted is nothing that counts.
    (cells / ".0007-000.msgpack.999").write_bytes(b"half")
    kept = {path.name: path.stat().st_mtime_ns for path in cells.glob("0*.msgpack")}
    assert len(kept) >= 5
    resumed = start(suite, out)
    _wait_for(resumed, 1)
    now = {path.name: path.stat().st_mtime_ns for path in cells.glob("0*.msgpack")}
    assert kept.items() <= now.items()
    _, err = ended(resumed)
    assert resumed.returncode == 0, err
    result = read_result(out)
    assert len(result.results) == 12
    assert all(len(entry.windows) == 4 for entry in result.results)


@pytest.mark.slow
def test_an_interrupted_suite_shows_what_there_is_and_goes_on_later(suite, start, tmp_path, ipj_edge_cli):
    out = tmp_path / "r.json"
    child = start(suite, out)
    _wait_for(child, 3)
    child.send_signal(signal.SIGINT)
    text, err = ended(child)
    assert child.returncode == 130, err
    assert "run the same command again" in err
    assert "work.spin-cpu" in text
    assert not out.exists()
    ran = ipj_edge_cli("bench", "--suite", suite, "--probe", "modelled", "--json", out)
    assert ran.code == 0, ran
    assert "going on: " in ran.err
    assert len(read_result(out).results) == 12


def test_cells_of_another_suite_or_other_data_do_not_mix(suite, start, tmp_path, ipj_edge_cli):
    out = tmp_path / "r.json"
    child = start(suite, out)
    _wait_for(child, 2)
    child.kill()
    ended(child)
    os.utime(tmp_path / "data.npz", ns=(1, 1))
    ran = ipj_edge_cli("bench", "--suite", suite, "--probe", "modelled", "--json", out)
    assert ran.code == 2, ran
    assert "bundles or data changed" in ran.err
    ran = ipj_edge_cli("bench", "--suite", suite, "--probe", "modelled", "--json", out, "--force")
    assert ran.code == 0, ran
