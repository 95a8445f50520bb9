"""Read an ONNX file with its external weights, and refuse what cannot be used with a reason."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path, PurePosixPath
from typing import Any

from ipj_edge.errors import SourceError, UnsupportedError, typed_line
from ipj_edge.plugins import needs
from ipj_edge_converters.onnx.graphs import all_nodes, all_tensors, opset_of
from ipj_edge_converters.onnx.source.order import ordered

_WHOLE = re.compile(r"[0-9]{1,19}")
_OLDEST_OPSET = 7
_LARGEST_BYTES = 2**31  # protobuf cannot hold more in one message


def read_onnx(path: Path) -> tuple[Any, str]:
    """Read a model with all its weights in memory, and hash the files it is made of.

    The hash is the file's sha256; with external weights it is the sha256 of all files' sha256 digests in order.

    Raises:
        SourceError: a file is missing or cut short, is not ONNX, or is of a version this onnx does not know.
        UnsupportedError: it needs operators that no standard defines; names them.
    """
    with needs("convert"):
        import onnx
    if not path.is_file():
        raise SourceError(f"no file '{path}'")
    content = path.read_bytes()
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:
        raise SourceError(f"'{path.name}' is not an ONNX file, or is cut short: {typed_line(error)}") from error
    if not model.graph.node or not model.ir_version:
        raise SourceError(f"'{path.name}' holds no ONNX graph")
    _check_versions(model, path.name)
    _check_operators(model, path.name)
    hashes = [hashlib.sha256(content), *(_sha256(data) for data in load_external(model, path))]
    model = ordered(model, path.name)
    if len(hashes) == 1:
        return model, hashes[0].hexdigest()
    return model, hashlib.sha256(b"".join(part.digest() for part in hashes)).hexdigest()


def _check_versions(model: Any, file: str) -> None:
    with needs("convert"):
        import onnx
    newest = onnx.defs.onnx_opset_version()
    opset = opset_of(model)
    if opset > newest:
        raise SourceError(
            f"'{file}' is stamped opset {opset}; the newest that onnx {onnx.__version__} knows is {newest}: "
            "export it with an older opset"
        )
    if opset and opset < _OLDEST_OPSET:
        raise SourceError(
            f"'{file}' is of opset {opset}; {_OLDEST_OPSET} is the oldest that is read: export it again, "
            "or convert it with onnx.version_converter"
        )
    if model.ir_version > onnx.IR_VERSION:
        raise SourceError(
            f"'{file}' is of IR version {model.ir_version}; the newest that onnx {onnx.__version__} knows is "
            f"{int(onnx.IR_VERSION)}: update onnx, or save the model with an older one"
        )


def _check_operators(model: Any, file: str) -> None:
    with needs("convert"):
        import onnx
    local = {(function.domain, function.name) for function in model.functions}
    custom = sorted(
        {
            f"{node.domain or 'ai.onnx'}::{node.op_type}"
            for node in all_nodes(model)
            if (node.domain, node.op_type) not in local and not _is_known(node, onnx.defs)
        }
    )
    if custom:
        raise UnsupportedError(
            f"'{file}' needs the custom operator {', '.join(custom)}, which no engine has on its own: "
            "export the model with standard operators",
            tuple(custom),
        )


def _is_known(node: Any, definitions: Any) -> bool:
    if node.domain == "com.microsoft":
        return True  # onnxruntime itself says whether it has it
    domain = "" if node.domain == "ai.onnx" else node.domain
    return domain in ("", "ai.onnx.ml") and bool(definitions.has(node.op_type, domain))


def load_external(model: Any, path: Path) -> list[Path]:
    """Load external weights into the model and return the files they came from, in the order of first use.

    Raises:
        SourceError: a file is missing, cut short or too large, or stands outside the model's folder.
    """
    with needs("convert"):
        import onnx
    files: dict[str, Path] = {}
    for tensor in all_tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            facts = {entry.key: entry.value for entry in tensor.external_data}
            location = facts.get("location", "")
            files[location] = _external_file(path, location)
            _check_length(files[location], facts, tensor.name)
    if sum(file.stat().st_size for file in files.values()) >= _LARGEST_BYTES:
        raise SourceError(f"'{path.name}' has more than 2 GB of weights, which is more than one ONNX file can hold")
    if files:
        onnx.load_external_data_for_model(model, str(path.parent))
    return list(files.values())


def _external_file(path: Path, location: str) -> Path:
    relative = PurePosixPath(location)
    if not location or relative.is_absolute() or ".." in relative.parts:
        raise SourceError(f"'{path.name}' keeps weights in '{location}'; only a file beside it is read")
    file = path.parent / relative
    if not file.resolve().is_relative_to(path.parent.resolve()):
        raise SourceError(f"'{path.name}' keeps weights in '{location}', a link out of its folder: copy that file")
    if not file.is_file():
        raise SourceError(f"'{path.name}' keeps its weights in '{location}', which is not beside it: copy both files")
    return file


def _check_length(file: Path, facts: dict[str, str], tensor: str) -> None:
    offset, length = (facts.get(name, "") or "0" for name in ("offset", "length"))
    if not (_WHOLE.fullmatch(offset) and _WHOLE.fullmatch(length)):
        raise SourceError(f"'{tensor}' is said to be at byte '{offset[:30]}' of '{file.name}', '{length[:30]}' bytes")
    end = int(offset) + int(length)
    if file.stat().st_size < end:
        raise SourceError(
            f"'{file.name}' is cut short: it has {file.stat().st_size} bytes, and '{tensor}' ends at byte {end}"
        )


def _sha256(path: Path) -> Any:
    return hashlib.sha256(path.read_bytes())
