"""A torch module as a source: reference run, and the forms that converters ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from ipj_edge.errors import SourceError, typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array, Feeds, MacCount, OnnxForm, Source, StagedSource, TorchForm
from ipj_edge.values import Precision, TensorSpec
from ipj_edge_converters.sources.batch_proof import SizedInputs
from ipj_edge_converters.sources.feeds import check_feeds, example_arrays, run_in_parts, static_batch
from ipj_edge_converters.sources.origin import Origin
from ipj_edge_converters.torch.macs import count_torch
from ipj_edge_converters.torch.program import EXPORT_FAILURES, Program, as_tensors
from ipj_edge_converters.torch.to_onnx import write_onnx


class TorchSource:
    """An opened torch module; see `ipj_edge.protocols.Source`.

    Attributes:
        notes: What a reader of a bundle's manifest has to know, e.g. why the batch is static.
        exits: Outputs that are exits, for a staged module; empty for a plain one.
        only_size: Why it takes one size along its first axis only; empty where it takes any number of samples.
    """

    forms: tuple[str, ...] = ("onnx", "torch")

    def __init__(
        self,
        origin: Origin,
        module: Any,
        program: Program,
        sized: SizedInputs,
        outputs: tuple[TensorSpec, ...],
        *,
        workdir: Path,
        max_batch: int,
    ) -> None:
        self.kind, self.name, self.file, self.sha256 = origin.kind, origin.name, origin.file, origin.sha256
        self.precision: Precision = origin.precision
        self.inputs, self.outputs, self.only_size = sized.inputs, outputs, sized.only_size
        self.versions = {"torch": version("torch")}
        has_batch = not sized.only_size or static_batch(sized.inputs) is not None
        static = () if program.dynamic or not has_batch else (f"the batch is static: {program.reason}",)
        self.notes: tuple[str, ...] = (*static, *sized.notes)
        self.exits = _exits(module.model, outputs)
        self._module, self._program = module, program
        self._workdir, self._max_batch = workdir, max_batch

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run the module itself (not the exported program) on any number of samples."""
        check_feeds(feeds, self.inputs)
        return run_in_parts(self._run, feeds, self.inputs, self.outputs, self._max_batch)

    def count(self) -> MacCount:
        """Count multiply-accumulates and parameters for one sample."""
        static = None if self._program.dynamic else static_batch(self.inputs)
        arrays = example_arrays(self.inputs, 1 if self._program.dynamic else None)
        return count_torch(self._module, as_tensors(arrays), samples=static or 1)

    def onnx_path(self) -> Path:
        """Return the path of the ONNX file made from the exported program; it is made once."""
        return self._onnx_path

    def torch_module(self) -> Any:
        """Return the module, taking its inputs in order and returning a tuple of tensors."""
        return self._module

    @cached_property
    def _onnx_path(self) -> Path:
        path = self._workdir / "source.onnx"
        write_onnx(self._program.exported, self.inputs, self.outputs, path)
        self.versions |= {name: version(name) for name in ("onnx", "onnxscript")}
        return path

    def _run(self, feeds: Feeds) -> dict[str, Array]:
        answers = run_module(self._module, [feeds[spec.name] for spec in self.inputs])
        return {spec.name: answer for spec, answer in zip(self.outputs, answers, strict=True)}


def _exits(model: Any, outputs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Return the outputs of a staged module (see `ipj_edge.protocols.StagedModule`): each is an exit."""
    staged = hasattr(model, "stages") and hasattr(model, "heads")
    return tuple(spec.name for spec in outputs) if staged and len(outputs) > 1 else ()


def run_module(module: Any, arrays: Sequence[Array]) -> list[Array]:
    """Run a module that takes its inputs by position and returns a tuple.

    Raises:
        SourceError: the module raised.
    """
    with needs("convert"):
        import torch
    try:
        with torch.inference_mode():
            return [tensor.numpy() for tensor in module(*as_tensors(arrays))]
    except EXPORT_FAILURES as error:
        shown = ", ".join(f"{'x'.join(map(str, array.shape)) or 'scalar'} {array.dtype}" for array in arrays)
        raise SourceError(f"the model fails on inputs of {shown}: {typed_line(error)}") from error


def try_module(module: Any, inputs: Sequence[TensorSpec], batch: int | None) -> tuple[Any, list[Array]]:
    """Return what a module answers to an example of its inputs, names and all, and what it answered the first time.

    Args:
        module: A module that `by_position` made.
        inputs: Its inputs.
        batch: Samples to give it; None keeps the static sizes of the inputs.

    Raises:
        SourceError: the module raised.
    """
    with needs("convert"):
        import torch
    arrays = example_arrays(inputs, batch)
    first = [answer.copy() for answer in run_module(module, arrays)]
    with torch.inference_mode():
        return module.answer(*as_tensors(arrays)), first


def torch_outputs(
    module: Any,
    names: Sequence[str],
    inputs: Sequence[TensorSpec],
    *,
    dynamic: bool,
    given: Mapping[str, Array] | None = None,
) -> tuple[TensorSpec, ...]:
    """Describe a module's outputs by running it; a dynamic batch is told from a size by running two batches.

    Settings, which may say how large an output is, are taken from ``given``: real inputs by name.
    """
    if dynamic:
        one, other = (run_module(module, example_arrays(inputs, batch, given=given)) for batch in (2, 3))
        return tuple(_spec(name, *pair) for name, *pair in zip(names, one, other, strict=True))
    answers = run_module(module, example_arrays(inputs, None, given=given))
    batch = static_batch(inputs)
    return tuple(_static_spec(name, answer, batch) for name, answer in zip(names, answers, strict=True))


def with_dynamic_batch(inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return the specs with the size of the batch axis named ``batch``."""
    return tuple(msgspec.structs.replace(spec, shape=_named(spec)) for spec in inputs)


def _named(spec: TensorSpec) -> tuple[int | str, ...]:
    return tuple("batch" if axis == spec.batch_axis else size for axis, size in enumerate(spec.shape))


def _spec(name: str, at_two: Array, at_three: Array) -> TensorSpec:
    sizes = list(zip(at_two.shape, at_three.shape, strict=True))
    shape = tuple(
        two if two == three else "batch" if (two, three) == (2, 3) else f"{name}_dim{axis}"
        for axis, (two, three) in enumerate(sizes)
    )
    axis = shape.index("batch") if "batch" in shape else None
    return TensorSpec(name=name, shape=shape, dtype=str(at_two.dtype), batch_axis=axis)


def _static_spec(name: str, answer: Array, batch: int | None) -> TensorSpec:
    axis = 0 if batch is not None and answer.ndim and answer.shape[0] == batch else None
    return TensorSpec(name=name, shape=answer.shape, dtype=str(answer.dtype), batch_axis=axis)


_source: type[Source] = TorchSource
_onnx: type[OnnxForm] = TorchSource
_torch: type[TorchForm] = TorchSource
_staged: type[StagedSource] = TorchSource
