"""Whether a torch module's first axis holds samples, and whether it answers the same twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ipj_edge.errors import SourceError
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge.values import TensorSpec
from ipj_edge_converters.sources import batch_proof
from ipj_edge_converters.sources.batch_proof import SizedInputs
from ipj_edge_converters.sources.feeds import static_batch
from ipj_edge_converters.torch.outputs import named_tensors
from ipj_edge_converters.torch.source import run_module, torch_outputs


def with_proven_batch(
    module: Any, names: Sequence[str], inputs: tuple[TensorSpec, ...], max_batch: int, given: Mapping[str, Array]
) -> SizedInputs:
    """Keep the batch axis of a module's inputs where the module shows that it holds samples.

    Args:
        module: A module that takes its inputs by position and returns a tuple.
        names: Names of its outputs.
        inputs: Its inputs, all sizes numbers.
        max_batch: Largest batch it may be given.
        given: Real inputs by name.
    """
    size = static_batch(inputs)
    if size is None:
        return SizedInputs(inputs=inputs)
    asked = ask_module(module, names, inputs, max_batch, given) if max_batch > 1 else batch_proof.BatchAnswer(ran=False)
    if asked.ran:
        return SizedInputs(inputs=batch_proof.without_batch(inputs) if asked.reason else inputs, only_size=asked.reason)
    return at_one_size(module, names, inputs, size, given)


def ask_module(
    module: Any, names: Sequence[str], inputs: tuple[TensorSpec, ...], max_batch: int, given: Mapping[str, Array]
) -> batch_proof.BatchAnswer:
    """Ask a module at several sizes of its first axis."""

    def run(arrays: Sequence[Array]) -> list[Array]:
        return run_module(module, arrays)

    try:
        outputs = torch_outputs(module, names, inputs, dynamic=True)
    except SourceError:
        return batch_proof.BatchAnswer(ran=False)
    return batch_proof.ask(run, inputs, outputs, largest=max_batch, given=given)


def at_one_size(
    module: Any, names: Sequence[str], inputs: tuple[TensorSpec, ...], size: int, given: Mapping[str, Array]
) -> SizedInputs:
    """A module of one size cannot be asked at others: a single sample is looped, several must not see one another."""
    if size == 1:
        return SizedInputs(inputs=inputs)

    def run(arrays: Sequence[Array]) -> list[Array]:
        return run_module(module, arrays)

    outputs = torch_outputs(module, names, inputs, dynamic=False)
    asked = batch_proof.ask_at(run, inputs, outputs, size=size, given=given)
    proven = asked.ran and not asked.reason
    return SizedInputs(
        inputs=inputs if proven else batch_proof.without_batch(inputs),
        only_size=asked.reason or batch_proof.runs_alone(size),
    )


@contextmanager
def unchanged(module: Any) -> Iterator[list[str]]:
    """Put a module's buffers back after a trial; yields a list that then names those which the trial changed."""
    with needs("convert"):
        import torch
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    changed: list[str] = []
    yield changed
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if name in before and not torch.equal(buffer, before[name]):
                changed.append(name)
                buffer.copy_(before[name])


def check_repeats(answer: Any, first: Sequence[Array], changed: Sequence[str]) -> None:
    """Refuse a module that answers the same inputs differently: there is nothing a bundle could be held against.

    Args:
        answer: What it answered, names and all.
        first: What it answered to the same inputs the first time.
        changed: Buffers that it changed on the way.

    Raises:
        SourceError: says what is known of the reason.
    """
    again = [tensor.numpy() for _, tensor in named_tensors(answer)]
    if all(_equal(one, other) for one, other in zip(first, again, strict=True)):
        return
    why = (
        f"it changes its buffers {', '.join(changed[:3])} in forward and answers by them"
        if changed
        else "it draws random numbers, or keeps something from one call to the next"
    )
    raise SourceError(f"the model answers the same inputs differently when it is run again: {why}; take that out first")


def buffers_notes(changed: Sequence[str], sized: SizedInputs) -> tuple[str, ...]:
    """Return what a reader has to know of a module that changes buffers its answers do not hang on.

    Raises:
        SourceError: it mixes its samples as well: that is a batch normalization in training mode, or like it.
    """
    if changed and sized.only_size:
        raise SourceError(
            f"the model mixes its samples and changes its buffers {', '.join(changed[:3])} in forward, as in training: "
            f"put all of it in evaluation mode (model.eval()) before it is converted ({sized.only_size})"
        )
    if not changed:
        return ()
    return (f"the model changes its buffers in forward ({', '.join(changed[:3])}); the bundle leaves them as they are",)


def _equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
