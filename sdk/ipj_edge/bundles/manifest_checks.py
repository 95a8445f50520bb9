"""What a manifest can say and cannot be true: everything here is refused before any of it is used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, prod

from ipj_edge.bundles.folder import FILE_LIMIT_BYTES
from ipj_edge.bundles.image_rule import why_no_image_fits
from ipj_edge.bundles.manifest import (
    GOLDEN_NAME,
    LATER_NAMES,
    MANIFEST_NAME,
    FileRecord,
    InputRange,
    Manifest,
    StageSpec,
)
from ipj_edge.values import Port, Quantization, TensorSpec

MOST_FILES = 4096
MOST_ELEMENTS = 1 << 40
MOST_AXES = 32
LARGEST_BATCH = 1 << 20
_INTEGERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
DTYPES = frozenset({"bool", "float16", "float32", "float64", "complex64", "complex128", *_INTEGERS})
_QUANTIZED = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-(1 << 15), (1 << 15) - 1), "uint16": (0, 65535)}
_QUANTIZED["int32"] = (-(1 << 31), (1 << 31) - 1)
ISAS = frozenset({"", "vnni", "avx512_vnni", "avx_vnni", "arm64", "dotprod", "sse4", "avx2", "avx512"})
# Options of execution providers that we write. Others name files to write and libraries to load.
_PROVIDER_OPTIONS = {
    "CUDAExecutionProvider": {"use_tf32"},
    "TensorrtExecutionProvider": {"trt_fp16_enable", "trt_int8_enable"},
    "CPUExecutionProvider": set[str](),
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def why_impossible(manifest: Manifest) -> str | None:
    """Return the first thing a manifest says that cannot be true; None where there is none."""
    for check in (_files, _tensors, _programs, _numbers, _requirements, _preprocessing):
        for problem in check(manifest):
            return problem
    return None


def _files(manifest: Manifest) -> Iterator[str]:
    paths = [record.path for record in manifest.files]
    if len(paths) > MOST_FILES:
        yield f"it records {len(paths)} files; {MOST_FILES} are the most"
    if len(set(paths)) != len(paths):
        yield "it records a file twice"
    for record in manifest.files:
        yield from _file(record)
    if GOLDEN_NAME not in paths:
        yield f"it does not record {GOLDEN_NAME}, without which nothing can be verified"
    if not manifest.name or _CONTROL.search(manifest.name) or len(manifest.name) > 255:
        yield f"its name is {manifest.name[:40]!a}"


def _file(record: FileRecord) -> Iterator[str]:
    parts = record.path.split("/")
    if ".." in parts or record.path.startswith("/"):
        yield f"it names a file outside the bundle: {record.path[:200]!a}"
    odd = any(not part or part == "." or len(part.encode()) > 255 for part in parts) or len(parts) > 16
    if odd or "\\" in record.path or _CONTROL.search(record.path):
        yield f"{record.path[:200]!a} is no path of a file inside the bundle"
    if record.path in (MANIFEST_NAME, *LATER_NAMES):
        yield f"it records '{record.path}', which no manifest can know"
    if not _SHA256.fullmatch(record.sha256):
        yield f"the sha256 of '{record.path}' is not one"
    if not 0 <= record.size_bytes <= FILE_LIMIT_BYTES:
        yield f"the size of '{record.path}' is {record.size_bytes} bytes; {FILE_LIMIT_BYTES} are the most"


def _tensors(manifest: Manifest) -> Iterator[str]:
    if not manifest.outputs:
        yield "it has no outputs: nothing would be compared"
    for role, specs in (("input", manifest.inputs), ("output", manifest.outputs)):
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            yield f"two {role}s have the same name"
        for spec in specs:
            yield from _tensor(role, spec)


def _tensor(role: str, spec: TensorSpec) -> Iterator[str]:
    yield from _shaped(f"{role} '{spec.name}'", spec.shape, spec.dtype)
    if spec.batch_axis is not None and not 0 <= spec.batch_axis < len(spec.shape):
        yield f"{role} '{spec.name}' has no axis {spec.batch_axis}"
    if spec.value_range is not None and not spec.value_range[0] <= spec.value_range[1]:
        yield f"the range of {role} '{spec.name}' is empty"


def _shaped(what: str, shape: Sequence[int | str], dtype: str) -> Iterator[str]:
    if dtype not in DTYPES:
        yield f"the dtype of {what} is {dtype[:40]!a}, which is not known"
    sizes = [size for size in shape if isinstance(size, int)]
    if len(shape) > MOST_AXES or any(size < 0 for size in sizes) or prod(sizes) > MOST_ELEMENTS:
        yield f"the shape of {what} cannot be: {str(list(shape))[:100]}"
    if any(size == "" for size in shape):
        yield f"a size of {what} has no name"


def _programs(manifest: Manifest) -> Iterator[str]:
    if not manifest.stages:
        yield "it has no stages: nothing would run"
    names = {spec.name for spec in manifest.inputs}
    pool, recorded = set(names), {record.path for record in manifest.files}
    for stage in manifest.stages:
        yield from _program(stage, recorded, pool, several=len(manifest.stages) > 1)
        pool |= {port.name for port in stage.adds}
    made = {port.name for stage in manifest.stages for port in stage.adds}
    taken = {port.name for stage in manifest.stages for port in stage.takes}
    for name in sorted(names - taken):
        yield f"no stage takes the input '{name}'"
    for spec in manifest.outputs:
        if spec.name not in made:
            yield f"no stage makes the output '{spec.name}'"
    yield from _unsplit(manifest, recorded, names)


def _unsplit(manifest: Manifest, recorded: set[str], names: set[str]) -> Iterator[str]:
    if manifest.unsplit is None:
        if len(manifest.stages) > 1:
            yield "it has several stages and no unsplit program"
        return
    yield from _program(manifest.unsplit, recorded, set(names), several=True)
    if names - {port.name for port in manifest.unsplit.takes}:
        yield "its unsplit program does not take every input"
    made = {port.name for port in manifest.unsplit.adds}
    if manifest.stages and manifest.stages[-1].exit_output not in made:
        yield "its unsplit program does not make the last exit"


def _program(stage: StageSpec, recorded: set[str], pool: set[str], *, several: bool) -> Iterator[str]:
    for file in (stage.file, stage.proxy_file):
        if file is not None and file not in recorded:
            yield f"it runs {file[:200]!r}, which is none of the files it records"
    for ports in (stage.takes, stage.adds):
        yield from _ports(stage.name, ports)
    if pool and not stage.takes:
        yield f"stage '{stage.name}' takes nothing"
    unmade = {port.name for port in stage.takes} - pool
    if unmade:
        yield f"stage '{stage.name}' takes '{sorted(unmade)[0]}', which nothing before it makes"
    exits = {port.name for port in stage.adds}
    if (several or stage.exit_output is not None) and stage.exit_output not in exits:
        yield f"stage '{stage.name}' does not make its exit"
    counts = (stage.macs or 0, stage.parameters, stage.file_bytes, stage.operators.total, *stage.weights.values())
    if min(counts) < 0:
        yield f"a count of stage '{stage.name}' is negative"


def _ports(stage: str, ports: Sequence[Port]) -> Iterator[str]:
    if len({port.name for port in ports}) != len(ports):
        yield f"two tensors of stage '{stage}' have the same name"
    for port in ports:
        yield from _port(port)


def _port(port: Port) -> Iterator[str]:
    yield from _shaped(f"tensor '{port.name}'", port.shape, port.dtype)
    if port.quantization is not None and not _is_scale(port.quantization, port.dtype):
        yield f"the scale of tensor '{port.name}' cannot be"


def _is_scale(quantization: Quantization, dtype: str) -> bool:
    low, high = _QUANTIZED.get(dtype, (1, 0))
    return 1e-38 < quantization.scale < 1e38 and low <= quantization.zero_point <= high


def _numbers(manifest: Manifest) -> Iterator[str]:
    batch, parity, calibration = manifest.batch, manifest.parity, manifest.calibration
    sizes = (*batch.probed, batch.max, *(() if batch.static is None else (batch.static,)))
    if not all(1 <= size <= LARGEST_BATCH for size in sizes):
        yield f"its batch sizes are {str(list(sizes))[:100]}; 1 to {LARGEST_BATCH} can be"
    if batch.static is not None and batch.max != batch.static:
        yield f"its batch is fixed at {batch.static} and at most {batch.max}"
    if manifest.golden_samples < 1:
        yield f"it has {manifest.golden_samples} golden samples: nothing would be compared"
    if not (isfinite(parity.tolerance) and parity.tolerance >= 0):
        yield f"its tolerance is {parity.tolerance}"
    if calibration is not None and (calibration.samples < 1 or _is_empty(calibration.inputs.values())):
        yield "its calibration holds nothing"
    for tensor in manifest.state:
        if any(size < 0 for size in tensor.shape):
            yield f"the shape of state '{tensor.name}' cannot be"


def _is_empty(ranges: Iterable[InputRange]) -> bool:
    return any(not each.low <= each.high for each in ranges)


def _requirements(manifest: Manifest) -> Iterator[str]:
    requires = manifest.requires
    if requires.isa not in ISAS:
        yield f"it needs the instruction set {requires.isa[:40]!a}, which is not known"
    for provider in requires.providers:
        if provider.name not in _PROVIDER_OPTIONS:
            yield f"it runs on {provider.name[:40]!a}, which is not known"
        unknown = set(provider.options) - _PROVIDER_OPTIONS.get(provider.name, set())
        if unknown:
            yield f"it sets {sorted(unknown)[0][:40]!a} of {provider.name}, which no bundle may"


def _preprocessing(manifest: Manifest) -> Iterator[str]:
    inputs = {spec.name for spec in manifest.inputs}
    for name, rule in manifest.preprocessing.items():
        if name not in inputs:
            yield f"it makes an image the input '{name}', which there is not"
        reason = why_no_image_fits(rule)
        if reason:
            yield f"the preprocessing of '{name}' cannot be: {reason}"
