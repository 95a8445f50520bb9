"""Cases of the conformance suite, as files: the node tests that the installed ``onnx`` package carries.

Nothing is copied: the package makes each case (a model, its inputs, the right outputs) when it is asked.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TARGETS = ("onnxruntime-cpu", "openvino-cpu")


def write_node_cases(folder: Path, names: Sequence[str] | None = None) -> list[str]:
    """Write node tests of the ``onnx`` package into a folder, one sub-folder each, and return their names.

    Args:
        folder: Where to.
        names: Which; None takes all, and the empty sequence the smallest set that holds every operator.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package overflows on purpose while it makes some of them
        from onnx.backend.test.case.node import collect_testcases

        cases = {case.name: case for case in collect_testcases(None)}
    chosen = sorted(cases) if names is None else (list(names) or smallest_set(cases.values()))
    for name in chosen:
        _write(cases[name], folder / name)
    return chosen


def smallest_set(cases: Iterable[Any]) -> list[str]:
    """Choose few cases that hold every operator: greedily, the case with most operators that are still missing.

    Of equals, the smallest model: it converts fastest.
    """
    held = {case.name: _operators(case.model) for case in cases}
    sizes = {case.name: case.model.ByteSize() for case in cases}
    missing = set().union(*held.values())
    chosen: list[str] = []
    while missing:
        best = max(held, key=lambda name: (len(held[name] & missing), -sizes[name], name))
        chosen.append(best)
        missing -= held[best]
    return sorted(chosen)


def _operators(model: Any) -> set[tuple[str, str]]:
    return {(node.domain, node.op_type) for node in model.graph.node}


def _write(case: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    inputs, outputs = case.data_sets[0]
    facts: dict[str, Any] = {"rtol": case.rtol, "atol": case.atol, "operators": sorted(_names(case.model))}
    try:
        np.savez(folder / "inputs.npz", **_named(case.model.graph.input, inputs))
        np.savez(folder / "outputs.npz", **_named(case.model.graph.output, outputs))
    except TypeError as error:
        facts["not_arrays"] = str(error)
    (folder / "facts.json").write_text(json.dumps(facts))


def _names(model: Any) -> set[str]:
    return {".".join(filter(None, (node.domain, node.op_type))) for node in model.graph.node}


def _named(ports: Any, values: Sequence[Any]) -> dict[str, Any]:
    """Return arrays by name; a sequence, an optional value or a number type that numpy lacks is a TypeError."""
    named = {}
    for port, value in zip(ports, values, strict=False):
        array = value if isinstance(value, np.ndarray | np.generic) else None
        if array is None or np.asarray(array).dtype.kind not in "biufUO":
            raise TypeError(f"'{port.name}' is {type(value).__name__}, not an array")
        array = np.asarray(array)
        named[port.name] = array.astype(str) if array.dtype.kind == "O" else array
    return named
