"""The torch source: a factory that returns an ``nn.Module``, with its weights in a file or in itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ipj_edge.errors import SourceError
from ipj_edge.plugins import needs
from ipj_edge.protocols import SourceOpener, SourceRequest
from ipj_edge.values import Precision, TensorSpec
from ipj_edge_converters.quiet import quiet
from ipj_edge_converters.sources.factory import Factory, looks_like_factory
from ipj_edge_converters.sources.torch_inputs import keywords_for
from ipj_edge_converters.sources.torch_outputs import by_position, output_names
from ipj_edge_converters.sources.torch_source import (
    Origin,
    TorchSource,
    run_module,
    torch_outputs,
    with_dynamic_batch,
)
from ipj_edge_converters.sources.weights import load_weights
from ipj_edge_converters.torch_program import as_tensors, example_arrays, export_program


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
        factory = Factory(request.location)
        module = factory.build()
        if request.weights is not None:
            load_weights(module, request.weights)
        precision = _widen(module)
        keywords = keywords_for(module, request)
        ordered = by_position(module, keywords)
        names = output_names(_try(ordered, request.inputs), request.output_names)
        program = export_program(ordered, request.inputs, request.max_batch)
        inputs = with_dynamic_batch(request.inputs) if program.dynamic else request.inputs
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
            inputs,
            torch_outputs(ordered, names, inputs, dynamic=program.dynamic),
            workdir=request.workdir,
            max_batch=request.max_batch,
        )


def _try(module: Any, inputs: Sequence[TensorSpec]) -> Any:
    """Return what the model itself answers to an example of its inputs."""
    with needs("convert"):
        import torch
    arrays = example_arrays(inputs, None)
    run_module(module, arrays)
    with torch.inference_mode(), quiet():
        return module.answer(*as_tensors(arrays))


def _widen(module: Any) -> Precision:
    """Make half-precision weights float32, which is exact, and return the precision they were stored in.

    Raises:
        SourceError: the weights are float64, which float32 cannot hold.
    """
    with needs("convert"):
        import torch
    dtypes = {tensor.dtype for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()}
    if torch.float64 in dtypes:
        raise SourceError(
            "the model has float64 weights, which no target runs: call .float() on it in the factory"
        )
    for dtype, precision in ((torch.float16, "fp16"), (torch.bfloat16, "bf16")):
        if dtype in dtypes:
            module.float()
            return cast(Precision, precision)
    return "fp32"


_: type[SourceOpener] = TorchOpener
