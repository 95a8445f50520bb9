"""The forms a converter gets from a source it was chosen for: `Source.forms` has promised them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from ipj_edge.protocols import OnnxForm, Source, TfliteForm, TorchForm


def onnx_path(source: Source) -> Path:
    """Return the ONNX file of a source whose forms name ``onnx``."""
    return cast(OnnxForm, source).onnx_path()


def torch_module(source: Source) -> Any:
    """Return the torch module of a source whose forms name ``torch``."""
    return cast(TorchForm, source).torch_module()


def tflite_path(source: Source) -> Path:
    """Return the .tflite file of a source whose forms name ``tflite``."""
    return cast(TfliteForm, source).tflite_path()
