"""Runs cases, one a line of standard input, and answers each with a line: ``python fuzz_child.py SEEDS``.

The process is limited: 2 GB of data and 20 s of CPU a case. A case may kill it; then the parent starts another.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from fuzz_case import Case, Told
from fuzz_kinds import KINDS, case_of

DATA_BYTES = 2_000_000_000
LIMIT_S = 20
CANARY = b"nobody writes here"
_CHANGES = (
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.truncate",
    "os.chmod",
    "shutil.rmtree",
)
_NETWORK = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "urllib.Request")
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "pickle.find_class")


class Watch:
    """Sees through Python's audit events what a case writes, connects to and starts."""

    def __init__(self) -> None:
        self.within: Path | None = None
        self.seen: list[tuple[str, str]] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.within is None:
            return
        if event == "open":
            self._see_open(*arguments)
        elif event in _CHANGES:
            for path in arguments:
                if isinstance(path, str | bytes | Path):
                    self._check(path)
        elif event in _NETWORK and not str(arguments).startswith("(<socket.socket fd=-1"):
            self.seen.append(("network", f"{event} {arguments!r}"[:300]))
        elif event in _STARTS or (event == "subprocess.Popen" and os.fsdecode(arguments[0]) != sys.executable):
            self.seen.append(("write", f"{event} {arguments!r}"[:300]))

    def _see_open(self, path: Any, mode: Any, flags: int) -> None:
        writes = _writes(mode) or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if isinstance(path, str | bytes | Path) and writes:
            self._check(path)

    def _check(self, path: Any) -> None:
        text = os.fsdecode(path)
        if text == os.devnull or "\0" in text:
            return
        folder, name = os.path.split(text)
        # A link that is made or removed is where it stands, not where it leads.
        places = {os.path.realpath(text), os.path.join(os.path.realpath(folder or "."), name)}
        for place in places if os.path.exists(text) and not os.path.islink(text) else {min(places)}:
            if not Path(place).is_relative_to(str(self.within)):
                self.seen.append(("write", place))


def _writes(mode: Any) -> bool:
    return isinstance(mode, str) and bool(set(mode) & set("wax+"))


def run(case: Case, root: Path, watch: Watch) -> Told:
    """Run one case in an empty folder: ``case`` holds its files, ``outside`` a file that stays as it is."""
    inside, outside, temporary = (root / name for name in ("case", "outside", "case/.tmp"))
    inside.mkdir()
    outside.mkdir()
    temporary.mkdir()
    (outside / "canary").write_bytes(CANARY)
    case.write(inside)
    os.environ["TMPDIR"], old = str(temporary), os.getcwd()
    os.chdir(inside)
    used = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + LIMIT_S + 1, resource.RLIM_INFINITY))
    watch.within, watch.seen = inside.resolve(), []
    try:
        told = _judged(case)
    finally:
        watch.within = None
        os.chdir(old)
    told.seconds = round(time.process_time() - used, 4)
    return _with_writes(told, root, watch)


def _with_writes(told: Told, root: Path, watch: Watch) -> Told:
    outside = {path.name: path.read_bytes() for path in (root / "outside").iterdir()}
    if outside != {"canary": CANARY} or {path.name for path in root.iterdir()} != {"case", "outside"}:
        return Told(outcome="write", note=f"outside holds {sorted(outside)}")
    if watch.seen:
        return Told(outcome=watch.seen[0][0], note=watch.seen[0][1])
    left = sorted(path.name for path in (root / "case" / ".tmp").iterdir())
    if left and told.outcome == "clean":
        return Told(outcome="left", note=f"temporary files stayed: {left[:3]}")
    return told


def _judged(case: Case) -> Told:
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code, said = _CALLS.get(case.words[0], _cli)(case.words[1:])
    except BaseException:  # noqa: BLE001 # that is what is looked for
        return Told(outcome="traceback", note=traceback.format_exc()[-3000:])
    if code not in KINDS[case.kind].codes:
        return Told(outcome="code", note=f"exit {code}: {said or err.getvalue()[-500:]}")
    refusal = said if case.words[0] != "cli" else err.getvalue()
    if code and len(refusal.rstrip("\n").splitlines()) != 1 and not _is_judgement(code):
        return Told(outcome="lines", note=refusal[:500])
    return Told(outcome="clean", note=f"exit {code} {refusal.strip()[:200]}")


def _is_judgement(code: int) -> bool:
    """A regression or a missed target is told in a table, not in one line."""
    return code in (5, 7)


def _cli(arguments: tuple[str, ...]) -> tuple[int, str]:
    from ipj_edge.cli import exit_code_of

    return exit_code_of(arguments), ""


def _called(function: Callable[..., object]) -> Callable[[tuple[str, ...]], tuple[int, str]]:
    def call(arguments: tuple[str, ...]) -> tuple[int, str]:
        from ipj_edge.errors import IpjEdgeError

        try:
            function(*arguments)
        except IpjEdgeError as error:
            return error.exit_code, str(error)
        return 0, ""

    return call


def _spec() -> Any:
    from ipj_edge.values import TensorSpec

    return TensorSpec(name="image", shape=("batch", 3, 8, 8), dtype="float32")


def _rule() -> Any:
    from ipj_edge.values import Preprocessing

    return Preprocessing(size=(8, 8), resize="cover")


def _run(bundle: str) -> None:
    from ipj_edge.runtime.model import load

    images = dict(msgspec_arrays("x.npz"))
    with load(bundle) as model:
        model.run({"image": images["image"]})


def msgspec_arrays(path: str) -> dict[str, Any]:
    """Return the arrays of a good .npz file."""
    import numpy as np

    with np.load(path) as arrays:
        return dict(arrays)


def _trace(path: str) -> None:
    from ipj_edge.values import ProbeOptions
    from ipj_edge_probes.replay import ReplayProbe

    ReplayProbe().availability(ProbeOptions(port=path))
    sampler = ReplayProbe().open(ProbeOptions(port=path))
    sampler.start()
    sampler.drain()


def _data(path: str) -> None:
    from ipj_edge.samples.data import load_samples

    load_samples(path, [_spec()])


def _picture(path: str) -> None:
    from ipj_edge.samples.preprocess import apply, read_image

    apply(read_image(path), _rule(), "float32")


def _pictures(path: str) -> None:
    from ipj_edge.samples.data import load_samples

    load_samples(path, [_spec()], {"image": _rule()})


def _labels(path: str) -> None:
    from ipj_edge.cli.options.parse import labels

    labels(path)


def _preprocess(path: str) -> None:
    import numpy as np

    from ipj_edge.cli.options.parse import preprocessing
    from ipj_edge.samples.preprocess import apply

    for rule in preprocessing(path).values():
        if max(rule.size) < 2000:
            apply(np.zeros((9, 7, 3), np.uint8), rule, "float32")


def _suite(path: str) -> None:
    from ipj_edge.benchmark import BenchOptions
    from ipj_edge.benchmark.suite.file import load_suite

    load_suite(Path(path), BenchOptions())


def _tariff(path: str) -> None:
    from ipj_edge.energy.cost import load_tariff

    load_tariff(Path(path))


def _recipe(path: str) -> None:
    from ipj_edge_compress.recipes.recipe import load_recipe

    load_recipe(Path(path))


def _source(path: str) -> None:
    from ipj_edge.protocols import SourceRequest
    from ipj_edge_converters.onnx.source.opener import OnnxOpener
    from ipj_edge_converters.tflite.source.opener import TfliteOpener

    work = Path("work")
    work.mkdir()
    opener: Any = OnnxOpener() if path.endswith(".onnx") else TfliteOpener()
    source = opener.open(SourceRequest(location=path, workdir=work))
    source.count()


_CALLS: dict[str, Callable[[tuple[str, ...]], tuple[int, str]]] = {
    "cli": _cli,
    **{
        name: _called(function)
        for name, function in {
            "run": _run, "trace": _trace, "data": _data, "picture": _picture, "pictures": _pictures, "labels": _labels,
            "preprocess": _preprocess, "suite": _suite, "tariff": _tariff, "recipe": _recipe, "source": _source,
        }.items()
    },
}  # fmt: skip


def main(seeds: Path) -> None:
    """Answer questions until the input closes: ``{"folder", "seed", "number", "kinds"}`` or ``{"folder", "case"}``."""
    answers = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    watch = Watch()
    for line in sys.stdin:
        question = json.loads(line)
        if "case" in question:
            case = msgspec.convert(question["case"], Case)
        else:
            case = case_of(seeds, question["seed"], question["number"], tuple(question["kinds"]))
        root = Path(question["folder"])
        root.mkdir()
        with (root.parent / "stack").open("w") as stack:
            faulthandler.dump_traceback_later(LIMIT_S - 3, file=stack)
            told = run(case, root, watch)
            faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(root, ignore_errors=True)
        answers.write(json.dumps({"kind": case.kind, **msgspec.to_builtins(told)}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
