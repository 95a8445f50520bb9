"""The torch source: a factory that returns an ``nn.Module``, with its weights in a file or in itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ipj_edge.errors import SourceError
from ipj_edge.plugins import needs
from ipj_edge.protocols import SourceOpener, SourceRequest
from ipj_edge.values import Precision, TensorSpec
from ipj_edge_converters.sources.described import batch_where_it_is, samples_elsewhere
from ipj_edge_converters.sources.origin import Origin
from ipj_edge_converters.torch.batch import buffers_notes, check_repeats, unchanged, with_proven_batch
from ipj_edge_converters.torch.factory import Factory, looks_like_factory
from ipj_edge_converters.torch.inputs import arrangement
from ipj_edge_converters.torch.outputs import by_position, output_names
from ipj_edge_converters.torch.program import Program, export_program, with_open_sizes
from ipj_edge_converters.torch.source import TorchSource, torch_outputs, try_module, with_dynamic_batch
from ipj_edge_converters.torch.tables import with_tables
from ipj_edge_converters.torch.weights import load_weights


class TorchOpener:
    """Opens ``file.py:callable`` and ``package.module:callable``. The factory is trusted: opening it runs it."""

    name = "torch"

    def accepts(self, location: str) -> bool:
        """Say whether a location has the form of a factory."""
        return looks_like_factory(location)

    def open(self, request: SourceRequest) -> TorchSource:
        """Build the module, load its weights, try it on the inputs described and export it.

        Raises:
            SourceError: the factory failed, the weights do not fit, or the inputs are not described or wrong.
        """
        with needs("convert"):
            import torch  # noqa: F401 # a missing torch is no fault of the user's factory
        request = msgspec.structs.replace(request, inputs=batch_where_it_is(request.inputs))
        factory = Factory(request.location)
        module = factory.build()
        if request.weights is not None:
            load_weights(module, request.weights)
        precision = _widen(module)
        ordered = by_position(module, arrangement(module, request))
        with unchanged(module) as changed:
            answer, first = try_module(ordered, request.inputs, None)
        check_repeats(answer, first, changed)
        names = output_names(answer, request.output_names)
        sized = with_proven_batch(ordered, names, request.inputs, request.max_batch, request.examples)
        program, inputs, outputs = _exported(ordered, names, sized.inputs, request)
        return TorchSource(
            Origin(
                kind=self.name,
                name=factory.file.stem,
                file=factory.file.name,
                sha256=factory.sha256_of(request.weights),
                precision=precision,
            ),
            ordered,
            program,
            msgspec.structs.replace(sized, inputs=inputs, notes=buffers_notes(changed, sized)),
            outputs,
            workdir=request.workdir,
            max_batch=request.max_batch,
        )


def _exported(
    module: Any, names: Sequence[str], described: tuple[TensorSpec, ...], request: SourceRequest
) -> tuple[Program, tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return a module's program with its inputs and outputs, the batch dynamic where it can be."""
    program = export_program(module, described, request.max_batch)
    described = with_tables(program.exported, described)
    inputs = with_dynamic_batch(described) if program.dynamic else described
    outputs = torch_outputs(module, names, inputs, dynamic=program.dynamic, given=request.examples)
    elsewhere = samples_elsewhere((*inputs, *outputs))
    if elsewhere:
        program = msgspec.structs.replace(export_program(module, described, 1), reason=elsewhere)
        inputs = described
        outputs = torch_outputs(module, names, inputs, dynamic=False, given=request.examples)
    return program, inputs, with_open_sizes(program.exported, outputs)


def _widen(module: Any) -> Precision:
    """Make half-precision weights float32, which is exact, and return the precision they were stored in.

    Raises:
        SourceError: the weights are float64, which float32 cannot hold.
    """
    with needs("convert"):
        import torch
    dtypes = {tensor.dtype for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()}
    if torch.float64 in dtypes:
        raise SourceError("the model has float64 weights, which no target runs: call .float() on it in the factory")
    for dtype, precision in ((torch.float16, "fp16"), (torch.bfloat16, "bf16")):
        if dtype in dtypes:
            module.float()
            return cast(Precision, precision)
    return "fp32"


_: type[SourceOpener] = TorchOpener
