"""OpenVINO IR on disk, written so that the same model gives the same bytes."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from ipj_edge.errors import ConversionError, telling_line
from ipj_edge.plugins import needs

XML_NAME = "model.xml"
# Lines of an openvino message that do not say what is wrong: C++ locations, headings.
NOISE = ("Exception from ", "Check '", "FrontEnd API failed", "Model wasn't fully converted", "Summary:")

_LAYER = re.compile(r'(<layer id="\d+" name=")([^"]*)(" type="(\w+)")')
_END_OF_GRAPH = "</edges>"


def import_openvino() -> Any:
    """Import openvino, which a device install of the converters' package may lack."""
    with needs("convert"):
        import openvino
    return openvino


def write(model: Any, folder: Path, known_names: Collection[str]) -> None:
    """Save a model as ``model.xml`` and ``model.bin``, weights as they are (openvino's own default is float16).

    Args:
        model: An ``openvino.Model``.
        folder: Where to write.
        known_names: Names that come from the source; every other layer is renamed by its place in the file, since
            openvino names it after a counter of the process.

    Raises:
        ConversionError: openvino cannot write the model.
    """
    openvino = import_openvino()
    path = folder / XML_NAME
    try:
        openvino.save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:
        why = telling_line(error, NOISE, last=True)
        raise ConversionError(f"openvino cannot save the converted model: {why}") from error
    path.write_text(_normalised(path.read_text(encoding="utf-8"), known_names), encoding="utf-8")


def _normalised(xml: str, known_names: Collection[str]) -> str:
    graph, _, _ = xml.rpartition(_END_OF_GRAPH)
    # What follows the edges is a record of the conversion (tools, arguments, folders), which no engine needs.
    return _LAYER.sub(_renamer(set(known_names)), graph) + _END_OF_GRAPH + "\n</net>\n"


def _renamer(known: set[str]) -> Callable[[re.Match[str]], str]:
    counts: dict[str, int] = {}
    taken = set(known)

    def rename(match: re.Match[str]) -> str:
        before, name, after, kind = match.groups()
        if _comes_from(html.unescape(name), known):
            return match.group()
        while True:
            counts[kind] = counts.get(kind, -1) + 1
            new = f"{kind}_{counts[kind]}"
            if new not in taken:
                return f"{before}{new}{after}"

    return rename


def _comes_from(name: str, known: set[str]) -> bool:
    """Say whether a layer has a name of the source, or one with openvino's addition (``conv/fq_weights_1``)."""
    while name:
        if name in known:
            return True
        name = name.rpartition("/")[0]
    return False
