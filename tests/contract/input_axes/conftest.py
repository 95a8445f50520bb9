"""Sources made in a few lines, and bundles made from them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipj_edge.bundles.manifest import Bundle
from ipj_edge.cli.options.parse import tensor_spec
from ipj_edge.conversion import ConvertRequest, convert

_HEAD = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
"""


@pytest.fixture
def torch_net(tmp_path: Path) -> Callable[[str], str]:
    """Write a module and return the location of its factory; give the body of its class."""

    def write(body: str) -> str:
        text = _HEAD + textwrap.indent(textwrap.dedent(body), "    ") + "\n\ndef build():\n    return Net()\n"
        (tmp_path / "net.py").write_text(text)
        return f"{tmp_path / 'net.py'}:build"

    return write


@pytest.fixture
def bundle_of(tmp_path: Path) -> Callable[..., Bundle]:
    """Convert a source for one target and return the bundle, or raise what stopped it."""

    def make(source: str | Path, *inputs: str, target: str = "onnxruntime-cpu", **more: Any) -> Bundle:
        request = ConvertRequest(
            source=str(source),
            targets=(target,),
            into=tmp_path / "out",
            inputs=tuple(tensor_spec(text) for text in inputs),
            force=True,
            **more,
        )
        (outcome,) = convert(request)
        if outcome.error is not None:
            raise outcome.error
        assert outcome.bundle is not None
        return outcome.bundle

    return make
