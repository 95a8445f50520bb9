"""Cases made of torch modules: convert a factory of this folder and compare with the module itself, run by torch."""

from __future__ import annotations

import importlib
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np

# Largest relative L2 of an output, as `ipj-edge convert` itself allows (recurrent and deep networks need the most).
LIMITS = {"fp32": 1e-3, "int8": 0.15}
CALIBRATION_SAMPLES = 64


def run_module(group: str, name: str, target: str, precision: str) -> dict[str, Any]:
    """Convert one module and compare the bundle with torch on inputs that took no part in the conversion.

    Args:
        group: ``modules`` or ``architectures``.
        name: Its name in the table of that group.
        target: Target to convert for.
        precision: ``fp32`` or ``int8`` (static, calibrated on drawn inputs).
    """
    from ipj_edge.errors import IpjEdgeError

    into = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        note = _difference(group, name, target, precision, into)
    except IpjEdgeError as error:
        return {"outcome": "refused", "note": f"exit {error.exit_code}: {error}"}
    except Exception:
        return {"outcome": "traceback", "note": traceback.format_exc()[-2000:]}
    finally:
        shutil.rmtree(into, ignore_errors=True)
    return {"outcome": "wrong" if note else "right", "note": note}


def _difference(group: str, name: str, target: str, precision: str, into: Path) -> str:
    import ipj_edge
    from ipj_edge.cli.options.parse import tensor_spec
    from ipj_edge.conversion import ConvertRequest, convert

    table = importlib.import_module(f"conformance_{group}")
    example = {**getattr(table, "MODULES", {}), **getattr(table, "ARCHITECTURES", {})}[name][-1]
    spec = tensor_spec(example)
    calibration = None
    if precision == "int8":
        calibration = str(into / "calibration.npz")
        np.savez(into / "calibration.npz", **{spec.name: _draw(spec, CALIBRATION_SAMPLES, 1)})
    request = ConvertRequest(
        source=f"{table.__file__}:{name}", targets=(target,), into=into / "dist", inputs=(spec,),
        precisions=(precision,), calibration=calibration,
    )  # fmt: skip
    (outcome,) = convert(request)
    if outcome.bundle is None:
        assert outcome.error is not None
        raise outcome.error
    x = _draw(spec, 1, 2)
    with ipj_edge.load(outcome.bundle.path) as model:
        got = list(model.run(x).outputs.values())
    return _compare(got, _by_torch(table.build(name), x), LIMITS[precision])


def _draw(spec: Any, count: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    shape = (count, *spec.shape[1:])
    if spec.value_range is not None:
        low, high = map(int, spec.value_range)
        return generator.integers(low, high + 1, shape).astype(spec.dtype)
    return generator.normal(size=shape).astype(spec.dtype)


def _by_torch(module: Any, x: Any) -> list[Any]:
    import torch

    with torch.no_grad():
        answer = module(torch.from_numpy(x))
    if isinstance(answer, dict):
        answer = tuple(answer.values())
    return [part.numpy() for part in (answer if isinstance(answer, tuple) else (answer,))]


def _compare(got: list[Any], expected: list[Any], limit: float) -> str:
    if len(got) != len(expected):
        return f"{len(got)} outputs in place of {len(expected)}"
    for index, (have, want) in enumerate(zip(got, expected, strict=True)):
        if have.shape != want.shape:
            return f"output {index} has shape {have.shape}, not {want.shape}"
        if want.dtype.kind in "iub":
            if not np.array_equal(have, want):
                return f"output {index} differs"
            continue
        error = float(np.linalg.norm(have - want) / max(float(np.linalg.norm(want)), 1e-9))
        if not error <= limit:
            return f"output {index} is off by {error:.2g} (relative L2)"
    return ""
