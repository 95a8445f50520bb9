"""The kinds of cases: which file is changed how, what is done with it, and how that may end."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import tomllib
from fuzz_archives import odd_archive
from fuzz_bytes import damaged
from fuzz_case import Case, files_of
from fuzz_graphs import odd_onnx, odd_tflite, odd_xml
from fuzz_pictures import odd_picture
from fuzz_trees import changed, written_json, written_toml

ORT, OPENVINO, TFLITE = (f"net.{name}-cpu.fp32.ipj" for name in ("onnxruntime", "openvino", "tflite"))
STAGED = "staged.onnxruntime-cpu.fp32.ipj"
_ZEROS = b"0" * 64
_DIGEST = re.compile(rb'("digest": ?")([0-9a-f]{64})(")')


class Kind(NamedTuple):
    """A kind of cases.

    Attributes:
        make: Makes a case from the seeds' folder.
        share: How many of a thousand cases are of it.
        codes: Exit codes that it may end with.
        engine: Whether it gives a file to an engine in this process, which may die of it.
    """

    make: Callable[[Path, Random], Case]
    share: int
    codes: tuple[int, ...]
    engine: bool = False


def case_of(seeds: Path, seed: int, number: int, kinds: tuple[str, ...] = ()) -> Case:
    """Return a case: the same for the same seed and number."""
    rng = Random(f"{seed} {number}")
    names = kinds or tuple(KINDS)
    kind = rng.choices(names, [KINDS[name].share for name in names])[0]
    return KINDS[kind].make(seeds, rng)


@cache
def _seed(path: Path) -> bytes:
    return path.read_bytes()


@cache
def _bundle(folder: Path) -> dict[str, bytes]:
    return files_of(folder, "b.ipj/")


def _sealed(raw: bytes) -> bytes:
    """Return the bytes of a manifest, or of an exits.json, with the digest that belongs to them."""
    zeroed = _DIGEST.sub(rb"\g<1>" + _ZEROS + rb"\g<3>", raw, count=1)
    digest = hashlib.sha256(zeroed).hexdigest().encode()
    return _DIGEST.sub(rb"\g<1>" + digest + rb"\g<3>", zeroed, count=1)


def _with_hashes(files: dict[str, bytes], /, **fields: Any) -> dict[str, bytes]:
    """Return a bundle's files with the manifest that belongs to them."""
    manifest = json.loads(files["b.ipj/manifest.json"]) | fields
    for record in manifest["files"]:
        data = files[f"b.ipj/{record['path']}"]
        record |= {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return files | {"b.ipj/manifest.json": _sealed(json.dumps(manifest, indent=1).encode())}


def _manifest(seeds: Path, rng: Random) -> Case:
    files = dict(_bundle(seeds / rng.choice((ORT, ORT, OPENVINO, TFLITE, STAGED))))
    raw = files["b.ipj/manifest.json"]
    raw = damaged(raw, rng) if rng.random() < 0.25 else written_json(changed(json.loads(raw), rng), rng)
    files["b.ipj/manifest.json"] = _sealed(raw) if rng.random() < 0.9 else raw
    return Case(kind="manifest", files=files, words=("cli", rng.choice(("inspect", "verify", "verify")), "b.ipj"))


def _golden(seeds: Path, rng: Random) -> Case:
    files = dict(_bundle(seeds / rng.choice((ORT, TFLITE, STAGED))))
    arrays = dict(np.load(_stream(files["b.ipj/golden.npz"])))
    files["b.ipj/golden.npz"] = odd_archive(arrays, rng)
    return Case(kind="golden", files=_with_hashes(files), words=("cli", "verify", "b.ipj"))


def _engine(seeds: Path, rng: Random) -> Case:
    """Change the engine's file under right hashes."""
    files = dict(_bundle(seeds / rng.choice((ORT, OPENVINO, TFLITE))))
    name = rng.choice([name for name in files if name.endswith((".onnx", ".xml", ".bin", ".tflite"))])
    change = {"onnx": lambda data, rng: odd_onnx(data, rng)[0], "xml": odd_xml, "tflite": odd_tflite}
    files[name] = change.get(name.rsplit(".", 1)[1], damaged)(files[name], rng)
    files = _with_hashes(files) if rng.random() < 0.95 else files
    return Case(kind="engine", files=files, words=("cli", "verify", "b.ipj"))


def _exits(seeds: Path, rng: Random) -> Case:
    files = dict(_bundle(seeds / STAGED))
    raw = files["b.ipj/exits.json"]
    raw = damaged(raw, rng) if rng.random() < 0.3 else written_json(changed(json.loads(raw), rng), rng)
    files["b.ipj/exits.json"] = _sealed(raw) if rng.random() < 0.9 else raw
    files["x.npz"] = _seed(seeds / "data.npz")
    return Case(kind="exits", files=files, words=("run", "b.ipj"))


def _verified(seeds: Path, rng: Random) -> Case:
    """Change what a device wrote beside a bundle that a stand-in proved."""
    files = dict(_bundle(seeds / ORT))
    parity = json.loads(files["b.ipj/manifest.json"])["parity"] | {"verified_on": "proxy:onnxruntime-cpu"}
    files = _with_hashes(files, parity=parity)
    digest = json.loads(files["b.ipj/manifest.json"])["digest"]
    proof = {"digest": digest, "machine": "a", "engine": "onnxruntime 1", "utc": "2026-01-01T00:00:00+00:00"}
    files["b.ipj/verified.json"] = _json_file(proof, rng)
    return Case(kind="verified", files=files, words=("cli", "inspect", "b.ipj"))


def _placement(seeds: Path, rng: Random) -> Case:
    files = dict(_bundle(seeds / ORT))
    operator = {"name": "a", "type": "CONV_2D", "accelerated": True, "reason": "", "macs": 9, "at_border": False}
    placement = {"found_by": "compiler", "compiler": "c", "operators": [operator] * 2, "on_chip_bytes": 1}
    files["b.ipj/placement.json"] = _json_file(placement | {"off_chip_bytes": 2}, rng)
    records = json.loads(files["b.ipj/manifest.json"])["files"]
    files = _with_hashes(files, files=[*records, {"path": "placement.json"}])
    return Case(kind="placement", files=files, words=("cli", "inspect", "b.ipj"))


def _result(seeds: Path, rng: Random) -> Case:
    good = _seed(seeds / "result.json")
    files = {"good.json": good, "odd.json": _json_file(json.loads(good), rng)}
    words = rng.choice(
        (
            ("compare", "good.json", "odd.json"), ("compare", "odd.json", "good.json"),
            ("compare", "odd.json", "odd.json"),
            ("report", "odd.json", "-o", "page.html"), ("report", "good.json", "odd.json", "-o", "page.html"),
            ("pareto", "odd.json"), ("pareto", "good.json", "odd.json", "--json", "front.json"),
        )
    )  # fmt: skip
    return Case(kind="result", files=files, words=("cli", *words))


def _tuned(seeds: Path, rng: Random) -> Case:
    odd = _json_file(json.loads(_seed(seeds / "tuned.json")), rng)
    files = {"good.json": _seed(seeds / "result.json"), "odd.json": odd}
    return Case(kind="tuned", files=files, words=("cli", "report", "good.json", "odd.json", "-o", "page.html"))


def _toml(name: str) -> Callable[[Path, Random], Case]:
    def make(seeds: Path, rng: Random) -> Case:
        raw = _seed(seeds / f"{name}.toml")
        odd = damaged(raw, rng) if rng.random() < 0.3 else written_toml(changed(tomllib.loads(raw.decode()), rng), rng)
        files = {"odd.toml": odd}
        if name == "suite":
            files |= {path.replace("b.ipj", "n.ipj"): data for path, data in _bundle(seeds / ORT).items()}
        return Case(kind=name, files=files, words=(name, "odd.toml"))

    return make


def _trace(seeds: Path, rng: Random) -> Case:
    if rng.random() < 0.25:
        times = np.arange(20.0) / 10
        data = odd_archive({"time_s": times, "cpu_w": times + 3}, rng)
        return Case(kind="trace", files={"t.npz": data}, words=("trace", "t.npz"))
    raw = _seed(seeds / "trace.csv")
    if rng.random() < 0.6:
        return Case(kind="trace", files={"t.csv": damaged(raw, rng)}, words=("trace", "t.csv"))
    rows = [line.split(",") for line in raw.decode().splitlines()[1:]]
    cells = ("", "nan", "1e999", "-inf", "x", '"a', "1_0", "٣", "1" * 5000, "\x00", "time_s", "_w", "#")
    for _ in range(rng.choice((1, 1, 3))):
        row = rng.choice(rows)
        rng.choice(
            (
                row.pop,
                lambda row=row: row.insert(0, rng.choice(cells)),
                lambda row=row: row.__setitem__(-1, rng.choice(cells)),
            )
        )() if row else row.append("")
    text = rng.choice(("\n", "\r", "\r\n", "\u2028")).join(",".join(row) for row in rows)
    return Case(
        kind="trace",
        files={"t.csv": text.encode(rng.choice(("utf-8", "utf-8-sig", "utf-16")))},
        words=("trace", "t.csv"),
    )


def _data(seeds: Path, rng: Random) -> Case:
    arrays = dict(np.load(_stream(_seed(seeds / "data.npz"))))
    return Case(kind="data", files={"d.npz": odd_archive(arrays, rng)}, words=("data", "d.npz"))


def _picture(seeds: Path, rng: Random) -> Case:
    suffix = rng.choice(("png", "jpg", "gif", "tiff", "webp", "bmp"))
    odd = odd_picture(_seed(seeds / f"picture.{suffix}"), rng)
    name = f"p.{rng.choice((suffix, suffix, suffix, 'png', 'jpg'))}"
    return Case(kind="picture", files={f"folder/a/{name}": odd}, words=("picture", f"folder/a/{name}"))


def _pictures(seeds: Path, rng: Random) -> Case:
    """Give a folder of images as data."""
    odd = odd_picture(_seed(seeds / "picture.png"), rng)
    return Case(kind="pictures", files={"folder/a/p.png": odd}, words=("pictures", "folder"))


def _labels(seeds: Path, rng: Random) -> Case:
    odd = damaged(_seed(seeds / "labels.txt"), rng)
    if rng.random() < 0.2:
        odd = odd.decode("utf-8", "replace").encode("utf-16")
    return Case(kind="labels", files={"labels.txt": odd}, words=("labels", "labels.txt"))


def _xml_inspect(seeds: Path, rng: Random) -> Case:
    bundle = _bundle(seeds / OPENVINO)
    xml, weights = (next(data for name, data in bundle.items() if name.endswith(end)) for end in (".xml", ".bin"))
    files = {"m.xml": odd_xml(xml, rng), "m.bin": weights}
    return Case(kind="xml", files=files, words=("cli", "inspect", "m.xml", *rng.choice(((), ("--operators",)))))


def _onnx_inspect(seeds: Path, rng: Random) -> Case:
    odd, files, links = odd_onnx(_seed(seeds / rng.choice(("net.onnx", "staged.onnx"))), rng)
    words = ("cli", "inspect", "m.onnx", *rng.choice(((), ("--operators",))))
    return Case(kind="onnx", files={"m.onnx": odd, **files}, links=links, words=words)


def _onnx_open(seeds: Path, rng: Random) -> Case:
    odd, files, links = odd_onnx(_seed(seeds / rng.choice(("net.onnx", "staged.onnx"))), rng)
    return Case(kind="onnx-source", files={"m.onnx": odd, **files}, links=links, words=("source", "m.onnx"))


def _tflite_inspect(seeds: Path, rng: Random) -> Case:
    words = ("cli", "inspect", "m.tflite", *rng.choice(((), ("--operators",))))
    return Case(kind="tflite", files={"m.tflite": odd_tflite(_seed(seeds / "net.tflite"), rng)}, words=words)


def _tflite_open(seeds: Path, rng: Random) -> Case:
    odd = odd_tflite(_seed(seeds / "net.tflite"), rng)
    return Case(kind="tflite-source", files={"m.tflite": odd}, words=("source", "m.tflite"))


def _json_file(tree: Any, rng: Random) -> bytes:
    if rng.random() < 0.25:
        return damaged(json.dumps(tree).encode(), rng)
    return written_json(changed(tree, rng), rng)


def _stream(data: bytes) -> Any:
    from io import BytesIO

    return BytesIO(data)


# A source or data ends with 2, a bundle with 9; what is allowed beside says so itself: 3 an operator that nobody has,
# 4 the engine in a child died, 5 a quality target, 6 settings that are not to be had here, 7 a regression, 8 a probe.
KINDS: dict[str, Kind] = {
    "manifest": Kind(_manifest, 160, (0, 4, 6, 9), engine=True),
    "golden": Kind(_golden, 50, (0, 4, 9)),
    "engine": Kind(_engine, 45, (0, 4, 6, 9), engine=True),
    "exits": Kind(_exits, 60, (0, 9)),
    "verified": Kind(_verified, 30, (0, 9)),
    "placement": Kind(_placement, 30, (0, 9)),
    "result": Kind(_result, 90, (0, 2, 7)),
    "tuned": Kind(_tuned, 30, (0, 2)),
    "preprocess": Kind(_toml("preprocess"), 40, (0, 2)),
    "suite": Kind(_toml("suite"), 40, (0, 2, 9)),
    "tariff": Kind(_toml("tariff"), 25, (0, 2)),
    "recipe": Kind(_toml("recipe"), 10, (0, 2)),
    "trace": Kind(_trace, 60, (0, 8)),
    "data": Kind(_data, 80, (0, 2)),
    "picture": Kind(_picture, 90, (0, 2)),
    "pictures": Kind(_pictures, 10, (0, 2)),
    "labels": Kind(_labels, 20, (0, 2)),
    "xml": Kind(_xml_inspect, 50, (0, 2)),
    "onnx": Kind(_onnx_inspect, 50, (0, 2)),
    "onnx-source": Kind(_onnx_open, 15, (0, 2, 3, 4)),
    "tflite": Kind(_tflite_inspect, 60, (0, 2)),
    "tflite-source": Kind(_tflite_open, 5, (0, 2, 3, 4)),
}
