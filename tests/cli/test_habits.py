"""What holds for every command: numbers with a range, quiet and verbose, JSON to a file or -, streams of all kinds."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ipj_edge.cli import group

COMMAND = [sys.executable, "-m", "ipj_edge"]


def every_command() -> dict[str, click.Command]:
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        found |= {f"{name} {sub}".strip(): one for sub, one in inner.items()}
    return found


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, timeout=120, check=False, **options)  # type: ignore[call-overload]


def test_json_takes_a_file_or_a_dash_on_every_command_that_has_it() -> None:
    for name, command in every_command().items():
        for option in command.params:
            if "--json" in option.opts:
                assert not option.is_flag, name  # type: ignore[attr-defined]


def test_every_command_takes_quiet_and_verbose() -> None:
    for name, command in every_command().items():
        opts = {opt for option in command.params for opt in option.opts}
        assert {"--quiet", "--verbose"} <= opts, name


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", "x.ipj", "--threads", "100000"),
        ("bench", "x.ipj", "--window", "nan"),
        ("bench", "x.ipj", "--window", "inf"),
        ("bench", "x.ipj", "--every", "1e99s"),
        ("bench", "x.ipj", "--duration", "1e999s"),
        ("bench", "x.ipj", "--batch", "999999999"),
        ("bench", "x.ipj", "--windows", "10000000000"),
        ("bench", "x.ipj", "--core-power", "nan"),
        ("convert", "x.onnx", "--target", "onnxruntime-cpu", "-o", "d", "--tolerance", "nan"),
        ("convert", "x.onnx", "--target", "onnxruntime-cpu", "-o", "d", "--tolerance", "inf"),
        ("convert", "x.onnx", "--target", "onnxruntime-cpu", "-o", "d", "--seed", "-1"),
        ("run", "x.ipj", "x.npz", "--threads", "-1"),
        ("exits", "tune", "x.ipj", "--data", "x.npz", "--seed", "-1"),
        ("exits", "tune", "x.ipj", "--data", "x.npz", "--window", "nan"),
    ],
)
def test_a_number_out_of_range_is_a_usage_error_that_states_the_range(arguments: tuple[str, ...]) -> None:
    with pytest.raises(click.BadParameter, match=r"expected a (whole )?(number|time)"):
        group.main(list(arguments), standalone_mode=False)


def test_quiet_and_verbose_together_are_refused() -> None:
    with pytest.raises(click.UsageError, match="contradict"):
        group.main(["targets", "--quiet", "--verbose"], standalone_mode=False)


def test_a_terminal_of_another_encoding_gets_the_table_and_the_json_stays_utf8(tmp_path: Path) -> None:
    latin = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert run("probes", env=latin).returncode == 0
    told = run("probes", "--json", "-", env=latin)
    assert told.returncode == 0
    assert "±" in told.stdout.decode("utf-8") or json.loads(told.stdout)


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    script = f"set -o pipefail; {' '.join(COMMAND)} probes | head -c 1 >/dev/null"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_output_device_is_one_line_and_exit_code_2() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([*COMMAND, "targets"], stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stderr
    assert len(ended.stderr.decode().strip().splitlines()) == 1


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    for place in ("/", "/proc/x.json", str(tmp_path / ("n" * 300)), str(tmp_path / "no" / "such.json")):
        ended = run("targets", "--json", place)
        assert ended.returncode == 2, place
        assert b"cannot write" in ended.stderr
        assert b"Traceback" not in ended.stderr


def test_a_table_on_a_narrow_terminal_is_written_a_line_a_cell_and_without_colour() -> None:
    told = _on_terminal(["targets"], columns=40)
    assert "target: tflite-cpu" in told
    assert "\x1b[" not in told


def _on_terminal(arguments: list[str], columns: int) -> str:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "xterm"}
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        chunks = []
        try:
            while chunk := os.read(ours, 4096):
                chunks.append(chunk)
        except OSError:  # the other end is closed
            pass
        process.wait(timeout=120)
    os.close(ours)
    return b"".join(chunks).decode().replace("\r\n", "\n")
