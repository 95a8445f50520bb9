"""Hostile files of every kind that is read: clean refusals, no traceback, no hang, nothing written outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fuzz_case import Case, Told, files_of
from fuzz_kinds import KINDS, case_of
from fuzz_pool import asked, run_all
from fuzz_run import FOUND, failed, label, questions
from fuzz_seeds import LABELS, TOMLS, make_seeds

CASES = 2000
SEED = 2027
# Loading torch costs each child seconds: recipes go through one child together.
APART = ("recipe",)


@pytest.fixture(scope="session")
def seeds(made_once: Callable[..., Path]) -> Path:
    return made_once("fuzz-seeds", make_seeds)


def _outcomes(seeds: Path, folder: Path, cases: int, seed: int, kinds: tuple[str, ...]) -> list[str]:
    workers = min(2, len(os.sched_getaffinity(0)))
    found = []
    for question, kind, told in run_all(questions(cases, seed, kinds), seeds, folder, workers):
        named = kind or case_of(seeds, seed, question["number"], kinds).kind
        if failed(named, told):
            found.append(f"{named} case {question['number']}: {label(told)}\n{told.note[-600:]}")
    return found


@pytest.mark.slow
def test_hostile_files_are_refused_in_one_line_or_read(seeds: Path, tmp_path: Path) -> None:
    kinds = tuple(kind for kind in KINDS if kind not in APART)
    found = _outcomes(seeds, tmp_path, CASES, SEED, kinds)
    assert not found, "\n".join([f"{len(found)} of {CASES}; `make fuzz` keeps them", *found[:10]])


@pytest.mark.slow
def test_hostile_recipes_are_refused_in_one_line_or_read(seeds: Path, tmp_path: Path) -> None:
    assert not _outcomes(seeds, tmp_path, 60, SEED, APART)


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
def test_what_the_fuzzer_found_is_clean_now(path: Path, seeds: Path, tmp_path: Path) -> None:
    case = msgspec.json.decode(path.read_bytes(), type=Case)
    ((_, _, told),) = run_all([asked(case)], seeds, tmp_path, 1)
    assert not failed(case.kind, told), told


def test_the_same_number_gives_the_same_bytes(seeds: Path) -> None:
    first = [case_of(seeds, 5, number) for number in range(60)]
    assert first == [case_of(seeds, 5, number) for number in range(60)]
    assert first != [case_of(seeds, 6, number) for number in range(60)]


def _good(seeds: Path) -> dict[str, Case]:
    """Return a case of every kind with nothing changed: a seed that is refused would hide everything behind it."""

    def case(kind: str, *words: str, **files: bytes) -> Case:
        return Case(kind=kind, files={name.replace("__", "."): data for name, data in files.items()}, words=words)

    def of(name: str) -> bytes:
        return (seeds / name).read_bytes()

    bundles = {folder.name: files_of(folder, "b.ipj/") for folder in seeds.glob("*.ipj")}
    xml = next(path for path in seeds.glob("*openvino*/*.xml"))
    named = {
        name: Case(kind="manifest", files=files, words=("cli", "verify", "b.ipj")) for name, files in bundles.items()
    }
    staged = next(files for name, files in bundles.items() if name.startswith("staged")) | {"x.npz": of("data.npz")}
    named["exits"] = Case(kind="exits", files=staged, words=("run", "b.ipj"))
    named["result"] = case("result", "cli", "compare", "r.json", "r.json", r__json=of("result.json"))
    report = ("cli", "report", "r.json", "t.json", "-o", "page.html")
    named["tuned"] = case("tuned", *report, r__json=of("result.json"), t__json=of("tuned.json"))
    for name in TOMLS:
        kind = name.removesuffix(".toml")
        beside = {
            path.replace("b.ipj", "n.ipj"): data for path, data in bundles["net.onnxruntime-cpu.fp32.ipj"].items()
        }
        named[kind] = Case(kind=kind, files={"a.toml": of(name), **beside}, words=(kind, "a.toml"))
    named["trace"] = case("trace", "trace", "t.csv", t__csv=of("trace.csv"))
    named["data"] = case("data", "data", "d.npz", d__npz=of("data.npz"))
    named["labels"] = case("labels", "labels", "l.txt", l__txt=LABELS.encode())
    for path in sorted(seeds.glob("picture.*")):
        named[path.name] = Case(kind="picture", files={path.name: path.read_bytes()}, words=("picture", path.name))
    named["pictures"] = Case(kind="pictures", files={"f/a/p.png": of("picture.png")}, words=("pictures", "f"))
    weights = xml.with_suffix(".bin").read_bytes()
    named["xml"] = case("xml", "cli", "inspect", "m.xml", m__xml=xml.read_bytes(), m__bin=weights)
    for name in ("net.onnx", "staged.onnx", "net.tflite"):
        kind = name.split(".")[1]
        named[name] = Case(kind=kind, files={name: of(name)}, words=("cli", "inspect", name))
        named[f"{name} as a source"] = Case(kind=f"{kind}-source", files={name: of(name)}, words=("source", name))
    return named


def test_every_seed_is_taken_as_it_is(seeds: Path, tmp_path: Path) -> None:
    good = _good(seeds)
    tried = run_all([asked(case) for case in good.values()], seeds, tmp_path, 2)
    ended = {name: (told.outcome, told.note[:6]) for name, (_, _, told) in zip(good, tried, strict=True)}
    assert {name: how for name, how in ended.items() if how != ("clean", "exit 0")} == {}


def test_the_child_sees_what_a_case_does(seeds: Path, tmp_path: Path) -> None:
    """The judge itself: a write outside, a network call, an odd exit code, a hang and a dead child are all told."""
    told = {name: _tried(name, seeds, tmp_path) for name in ("write", "network", "exec", "fine", "left")}
    assert {name: each.outcome for name, each in told.items()} == {
        "write": "write", "network": "network", "exec": "write", "fine": "clean", "left": "left",
    }  # fmt: skip


JUDGED = """
import os, socket, sys
sys.path.insert(0, {fuzz!r})
import fuzz_child
from fuzz_case import Case
from pathlib import Path

DEEDS = {
    "write": lambda: open("../outside/more", "w").close(),
    "network": lambda: socket.create_connection(("127.0.0.1", 9), timeout=0.1),
    "exec": lambda: os.system("true"),
    "fine": lambda: open("here", "w").close(),
    "left": lambda: open(os.environ["TMPDIR"] + "/x", "w").close(),
}
name, root = sys.argv[1], Path(sys.argv[2])

def deed(_words):
    try:
        DEEDS[name]()
    except OSError:
        pass
    return 0, ""

fuzz_child._CALLS["labels"] = deed
root.mkdir()
told = fuzz_child.run(Case(kind="labels", files={}, words=("labels",)), root, fuzz_child.Watch())
print(told.outcome, told.note)
"""


def _tried(name: str, seeds: Path, folder: Path) -> Told:
    import subprocess
    import sys

    code = JUDGED.replace("{fuzz!r}", repr(str(Path(__file__).parent)))
    ran = subprocess.run(
        [sys.executable, "-c", code, name, str(folder / name)], capture_output=True, text=True, check=True
    )
    outcome, _, note = ran.stdout.strip().partition(" ")
    return Told(outcome=outcome, note=note)
