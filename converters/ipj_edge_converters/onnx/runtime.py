"""onnxruntime as a tool of the workstation: sessions that run a model as written, graphs it makes of one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from ipj_edge.errors import ConversionError, UnsupportedError, typed_line
from ipj_edge.host import default_threads
from ipj_edge.plugins import needs

# Its refusals come as exceptions; what it logs beside them, and its advice about old files, helps nobody.
_LOG_NOTHING = 4


def plain_session(model: bytes, file: str) -> Any:
    """Return a session that runs a serialized model operator by operator, all graph optimisations off.

    Raises:
        UnsupportedError: onnxruntime has no kernel for an operator; names it.
        ConversionError: onnxruntime refuses the model for another reason.
    """
    with needs("convert"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _session(model, file, options)


def as_engine_runs(model: Any, file: str, *, level: Literal["basic", "extended"]) -> Any:
    """Return the graph onnxruntime makes of a model.

    Args:
        model: An ONNX model.
        file: Its file name, for messages.
        level: ``basic`` folds constants; ``extended`` also fuses operators as the CPU engine does. Neither brings
            in the layouts that depend on this machine's CPU.

    Raises:
        UnsupportedError: onnxruntime has no kernel for an operator; names it.
        ConversionError: onnxruntime refuses the model for another reason.
    """
    with needs("convert"):
        import onnx
        import onnxruntime
    levels = onnxruntime.GraphOptimizationLevel
    with TemporaryDirectory(prefix="ipj-edge-") as folder:
        optimized = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = levels.ORT_ENABLE_BASIC if level == "basic" else levels.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(optimized)
        _session(model.SerializeToString(), file, options)
        return onnx.load_model(str(optimized))


def _session(model: bytes, file: str, options: Any) -> Any:
    with needs("convert"):
        import onnxruntime
    options.intra_op_num_threads = default_threads()
    options.log_severity_level = _LOG_NOTHING
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise _refused(error, file) from error


def _refused(error: BaseException, file: str) -> ConversionError:
    """Turn onnxruntime's refusal of a file into our error, which names the operator when that is the reason."""
    operator = _unknown_operator(str(error))
    if operator:
        return UnsupportedError(f"onnxruntime has no operator {operator} ('{file}' needs it)", (operator,))
    return ConversionError(f"onnxruntime refuses '{file}': {typed_line(error)}")


def _unknown_operator(message: str) -> str:
    """Find the operator in onnxruntime's two ways to say that it has no kernel for it."""
    for before, after in (
        ("Could not find an implementation for ", " node"),
        ("Fatal error: ", " is not a registered"),
    ):
        _, found, rest = message.partition(before)
        if found and after in rest:
            return rest.partition(after)[0]
    return ""
