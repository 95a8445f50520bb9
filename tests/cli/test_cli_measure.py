import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from command_line import INTERRUPTIBLE, ended, lines_until

from ipj_edge.cli.figures.measure import command
from ipj_edge.errors import ConfigError, DestinationError, PluginNotFoundError, ProbeUnavailableError
from ipj_edge.testing import powercap

BUSY = "import time\nwhile time.process_time() < 0.3: pass"
FIELDS = ["joules", "reason", "seconds", "watts", "low", "high", "provenance", "boundary", "probe", "rails"]
PROGRAM = [sys.executable, "-c", "from ipj_edge.cli.figures.measure import command; command()"]


def run(*arguments, **options):
    return CliRunner().invoke(command, arguments, **options)


def test_joules_watts_and_seconds_of_a_command(tmp_path):
    result = run("--probe", "modelled", "--json", str(tmp_path / "m.json"), "--", sys.executable, "-c", BUSY)
    assert result.exit_code == 0, result.output
    assert "J ±" in result.stdout
    assert "(modelled, process)" in result.stdout
    document = json.loads((tmp_path / "m.json").read_text())
    assert set(FIELDS) <= set(document)
    assert document["joules"] == pytest.approx(0.3 * 4.0, rel=0.3)
    assert document["watts"] == pytest.approx(document["joules"] / document["seconds"])
    assert document["low"] < document["joules"] < document["high"]
    assert document["rails"] == {"cpu-time": document["joules"]}
    assert document["exit_code"] == 0


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", 137)])
def test_the_childs_exit_code_is_passed_through(script, code):
    assert run("--probe", "none", "--", "sh", "-c", script).exit_code == code


def test_options_after_the_dashes_belong_to_the_child():
    result = subprocess.run(
        [*PROGRAM, "--probe", "none", "--", "printf", "%s|", "--json", "x", "--probe"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith("--json|x|--probe|")


def test_an_unavailable_probe_is_a_reason_and_the_child_still_runs(tmp_path):
    tree = powercap.masked_container(tmp_path / "sys")
    done = tmp_path / "done"
    result = run("--probe", "rapl", "--sysfs-root", str(tree.sysfs), "--json", "-", "--", "touch", str(done))
    assert result.exit_code == 0
    assert done.exists()
    document = json.loads(result.stdout)
    assert document["joules"] is None
    assert "masked" in document["reason"]
    assert document["provenance"] is None
    assert "masked" in result.stderr


def test_rapl_on_another_sysfs_root(tmp_path):
    tree = powercap.two_sockets(tmp_path / "sys")
    energy = tree.sysfs / "class/powercap/intel-rapl:0/energy_uj"
    script = f"sleep 0.1; printf '%-20d\\n' 4500000 > {energy}"
    result = run("--sysfs-root", str(tree.sysfs), "--json", "-", "--", "sh", "-c", script)
    document = json.loads(result.stdout)
    assert document["probe"] == "rapl"
    assert document["joules"] == pytest.approx(3.5)
    assert document["rails"]["dram-0"] == 0.0


def test_several_probes_give_several_readings_and_no_sum(tmp_path):
    result = run("--probe", "modelled", "--probe", "none", "--json", "-", "--", "sleep", "0.1")
    document = json.loads(result.stdout)
    assert [reading["probe"] for reading in document["readings"]] == ["modelled", "none"]
    assert document["probe"] == "modelled"


def test_a_required_measurement_that_cannot_be_had_ends_before_the_child_runs(tmp_path):
    done = tmp_path / "done"
    result = run("--require-measured", "--sysfs-root", str(tmp_path), "--", "touch", str(done))
    assert isinstance(result.exception, ProbeUnavailableError)
    assert result.exception.exit_code == 8
    assert not done.exists()


def test_a_required_measurement_that_fails_in_the_window_is_exit_code_8(tmp_path):
    tree = powercap.two_sockets(tmp_path / "sys")
    child = ["sh", "-c", "sleep 0.1; exit 3"]
    result = run("--require-measured", "--probe", "rapl", "--sysfs-root", str(tree.sysfs), "--", *child)
    assert result.exit_code == 8
    assert "did not move" in result.stdout
    assert "measured figure is required" in result.stderr


def test_a_required_measurement_of_no_window_at_all_is_exit_code_8(tmp_path):
    """The script that was to mark the windows died: nothing was measured, and that is not a pass."""
    tree = powercap.two_sockets(tmp_path / "sys")
    result = run("--require-measured", "--probe", "rapl", "--sysfs-root", str(tree.sysfs), "--trigger", "stdin")
    assert result.exit_code == 8
    assert "no window was marked" in result.stderr


def test_a_window_too_short_for_the_error_is_refused():
    result = run("--probe", "modelled", "--error", "0.1%", "--", "true")
    assert result.exit_code == 0
    assert "too short for ±0.1 %" in result.stdout


@pytest.mark.parametrize("error", ["5", "0%", "100%", "x%", "nan%", "5%%"])
def test_a_share_without_its_unit_or_out_of_range_is_refused(error):
    result = run("--error", error, "--", "true")
    assert isinstance(result.exception, ConfigError)
    assert "e.g. 5%" in str(result.exception)


def test_a_command_that_does_not_exist_is_one_clear_line():
    result = run("--probe", "none", "--", "nonesuch-command")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == "cannot run 'nonesuch-command': No such file or directory"


@pytest.mark.parametrize("arguments", [[], ["--trigger", "stdin", "--", "true"]])
def test_a_command_or_a_trigger_is_needed_and_not_both(arguments):
    assert isinstance(run(*arguments).exception, ConfigError)


def test_an_unknown_probe_is_refused_with_the_installed_ones():
    result = run("--probe", "nonesuch", "--", "true")
    assert isinstance(result.exception, PluginNotFoundError)
    assert "rapl" in str(result.exception)


def test_a_place_that_cannot_be_written_is_refused_before_the_child_runs(tmp_path):
    done = tmp_path / "done"
    for place in (tmp_path / "none" / "m.json", tmp_path):
        result = run("--json", str(place), "--", "touch", str(done))
        assert isinstance(result.exception, DestinationError)
    assert not done.exists()


def test_lines_on_stdin_mark_windows(tmp_path):
    lines = "start first\nstop 10\nnonsense\nstop\nstart second\n"
    result = run("--trigger", "stdin", "--probe", "modelled", "--json", str(tmp_path / "m.json"), input=lines)
    assert result.exit_code == 0, result.output
    windows = json.loads((tmp_path / "m.json").read_text())["windows"]
    assert [(window["name"], window["inferences"]) for window in windows] == [("first", 10), ("second", 0)]
    assert "too short" in windows[0]["reason"]
    assert "more inferences" in windows[0]["reason"]
    assert "ignored 'nonsense': expected 'start [NAME]'" in result.stderr
    assert "ignored 'stop'" in result.stderr


@pytest.fixture
def triggered():
    """Return a function that starts a measurement whose windows lines on stdin mark."""

    def start(*options):
        return subprocess.Popen(
            [*INTERRUPTIBLE, *PROGRAM, "--trigger", "stdin", "--probe", "modelled", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def obeyed(process, line):
    """Send a line, and return when it was obeyed: the one sent after it has been answered."""
    process.stdin.write(f"{line}\nand then\n")
    process.stdin.flush()
    lines_until(process, process.stderr, "ignored 'and then'")


def test_lines_through_a_pipe_measure_what_lies_between_them(triggered):
    process = triggered("--idle-power", "10", "--json", "-")
    obeyed(process, "")
    before_s = time.monotonic()
    obeyed(process, "start work")
    begun_s = time.monotonic()
    time.sleep(0.5)
    least_s = time.monotonic() - begun_s
    out, err = ended(process, "stop 100\n")
    window = json.loads(out)["windows"][0]
    assert least_s <= window["seconds"] <= time.monotonic() - before_s
    assert window["joules"] == pytest.approx(10 * window["seconds"], rel=0.3)
    assert "work: modelled" in err


CHILD = """
import os, signal, sys, time
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.process_time() + 0.1  # work to measure
while time.process_time() < end: pass
print("started", os.getpid(), flush=True)
while True: time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("number", "manner", "code"),
    [(signal.SIGINT, "meek", 130), (signal.SIGTERM, "meek", 143), (signal.SIGINT, "stubborn", 130)],
)
def test_an_interrupt_prints_what_was_measured_and_ends_the_child(tmp_path, number, manner, code):
    process = subprocess.Popen(
        [*INTERRUPTIBLE, *PROGRAM, "--probe", "modelled", "--json", str(tmp_path / "m.json"), "--",
         sys.executable, "-c", CHILD, manner],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    started = int(lines_until(process, process.stdout, "started").split()[-1])
    process.send_signal(number)
    out, err = ended(process)
    assert process.returncode == code, err
    assert "(modelled, process)" in out
    assert json.loads((tmp_path / "m.json").read_text())["joules"] > 0
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)


def test_an_interrupt_ends_a_triggered_measurement_with_what_there_is(triggered):
    process = triggered()
    obeyed(process, "start work")
    time.sleep(0.4)  # a window too short for the probe has a reason in place of a figure
    process.send_signal(signal.SIGINT)
    out, err = ended(process)
    assert process.returncode == 130, err
    assert "work: modelled:" in out


def test_the_help_imports_no_probe():
    script = (
        "import sys; from click.testing import CliRunner; from ipj_edge.cli.figures.measure import command\n"
        "result = CliRunner().invoke(command, ['--help'])\n"
        "assert result.exit_code == 0, result.output\n"
        "assert not [name for name in sys.modules if name.startswith(('ipj_edge_', 'ipj_edge.energy', 'rich'))]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
