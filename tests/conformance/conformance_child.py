"""Runs cases of the conformance suite, one a line of standard input, and answers each with a line of JSON.

A case may kill its engine, and with it this process: the pool starts another and counts the case as died.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def run_case(folder: Path, target: str) -> dict[str, Any]:
    """Convert one case, run the bundle on the case's inputs and compare with the case's outputs.

    Returns:
        ``outcome`` (right, wrong, refused, traceback, not-arrays) and a ``note`` that says why.
    """
    facts = json.loads((folder / "facts.json").read_text())
    if "not_arrays" in facts:
        return {"outcome": "not-arrays", "note": facts["not_arrays"]}
    expected = dict(np.load(folder / "outputs.npz"))
    inputs = dict(np.load(folder / "inputs.npz"))
    into = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        return _converted(folder, target, into, inputs, expected, facts)
    finally:
        shutil.rmtree(into, ignore_errors=True)


def _converted(
    folder: Path, target: str, into: Path, inputs: dict[str, Any], expected: dict[str, Any], facts: dict[str, Any]
) -> dict[str, Any]:
    from ipj_edge.errors import IpjEdgeError

    try:
        bundle = _publish(folder, target, into)
        got = _answers(bundle, inputs)
    except IpjEdgeError as error:
        return {"outcome": "refused", "note": f"exit {error.exit_code}: {error}"}
    except Exception:
        return {"outcome": "traceback", "note": traceback.format_exc()[-2000:]}
    note = difference(got, expected, facts["rtol"], facts["atol"])
    return {"outcome": "wrong" if note else "right", "note": note}


def _publish(folder: Path, target: str, into: Path) -> Path:
    """Convert as a user would who reads what a refusal says.

    The case's inputs are the data; where they cannot be (NaN, say), there is none. A float16 model becomes fp32 where
    the target has no float16.
    """
    from ipj_edge.conversion import ConvertRequest, convert
    from ipj_edge.errors import DataError, IpjEdgeError, TargetUnavailableError

    def attempt(data: str | None, precisions: tuple[Any, ...] = ()) -> Path:
        request = ConvertRequest(
            source=str(folder / "model.onnx"), targets=(target,), into=into, precisions=precisions, data=data
        )
        (outcome,) = convert(request)
        if outcome.bundle is None:
            assert outcome.error is not None
            raise outcome.error
        return outcome.bundle.path

    with np.load(folder / "inputs.npz") as held:
        data = str(folder / "inputs.npz") if held.files else None
    for given, precisions in ((data, ()), (None, ()), (data, ("fp32",)), (None, ("fp32",))):
        try:
            return attempt(given, precisions)
        except DataError as error:
            refused: IpjEdgeError = error
        except TargetUnavailableError as error:
            if "the source is fp16" not in str(error):
                raise
            refused = error
    raise refused


def _answers(bundle: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
    import ipj_edge

    with ipj_edge.load(bundle) as model:
        # A float16 source is widened: its bundle takes float32.
        dtypes = {spec.name: spec.dtype for spec in model.manifest.inputs}
        given = {name: x.astype(dtypes[name]) if x.dtype == "float16" else x for name, x in inputs.items()}
        return dict(model.run(given).outputs)


def bare_engine(folder: Path, target: str) -> str:
    """Run the engine itself on a case: empty when it is right, else what was wrong."""
    facts = json.loads((folder / "facts.json").read_text())
    inputs, expected = dict(np.load(folder / "inputs.npz")), dict(np.load(folder / "outputs.npz"))
    try:
        got = _ENGINES[target](folder / "model.onnx", inputs)
    except Exception as error:
        return f"the engine says: {str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error)}"
    return difference(got, expected, facts["rtol"], facts["atol"])


def _onnxruntime(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _openvino(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    import openvino

    model = openvino.convert_model(path)
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    # In order: OpenVINO may give a port another name.
    answers = compiled([inputs[port.get_any_name()] for port in compiled.inputs])
    import onnx

    ports = onnx.load(path, load_external_data=False).graph.output
    return {port.name: answers[index] for index, port in enumerate(ports)}


_ENGINES = {"onnxruntime-cpu": _onnxruntime, "openvino-cpu": _openvino}


def difference(got: Mapping[str, Any], expected: Mapping[str, Any], rtol: float, atol: float) -> str:
    """Return what differs, or nothing: shapes, integers to the unit, floats within the case's own tolerance."""
    for name, want in expected.items():
        if name not in got:
            return f"no output '{name}'"
        have = np.asarray(got[name])
        if have.shape != want.shape:
            return f"'{name}' has shape {have.shape}, not {want.shape}"
        if want.dtype.kind in "biuU":
            equal = np.array_equal(have, want)
        else:
            equal = np.allclose(
                have.astype(np.float64), want.astype(np.float64), max(rtol, 1e-3), max(atol, 1e-4), True
            )
        if not equal:
            return f"'{name}' differs"
    return ""


def answer(asked: Mapping[str, Any]) -> Any:
    """Run what one line asks for."""
    if asked["group"] != "nodes":
        from conformance_torch import run_module

        return run_module(asked["group"], asked["name"], asked["target"], asked["precision"])
    task = bare_engine if asked.get("bare") else run_case
    return task(Path(asked["folder"]) / asked["name"], asked["target"])


def main() -> None:
    """Answer cases until standard input ends; engines may write to the old standard output as they like."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            told = answer(json.loads(line))
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
