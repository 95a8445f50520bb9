"""Multiply-accumulates of one sample and number of weights of a torch module.

What cannot be counted has a reason, never a guess: an operator without a formula makes the whole count None.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from ipj_edge.errors import typed_line
from ipj_edge.plugins import needs
from ipj_edge.protocols import MacCount
from ipj_edge_converters.quiet import quiet

# Operators of torch that multiply and accumulate and have no formula, in torch's counter or below.
_UNCOUNTED = frozenset(
    (
        *("_cdist_forward", "_trilinear", "_int_mm", "mkldnn_rnn_layer", "quantized_lstm", "quantized_gru"),
        *("_native_multi_head_attention", "_transformer_encoder_layer_fwd", "addbmm", "_dyn_quant_matmul_4bit"),
        *("_weight_int8pack_mm", "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "mkldnn_convolution"),
    )
)


def count_torch(module: Any, tensors: Sequence[Any], *, samples: int) -> MacCount:
    """Count a torch module with torch's own FLOP counter: one multiply-accumulate is two FLOPs.

    Args:
        module: A module that takes these tensors by position.
        tensors: Example inputs.
        samples: Samples they hold.
    """
    with needs("convert"):
        import torch
        from torch.utils.flop_counter import FlopCounterMode
    parameters = sum(parameter.numel() for parameter in module.parameters())
    counter = FlopCounterMode(display=False, custom_mapping=_more_formulas())
    recorder, seen = _recorder()
    try:
        with quiet(), torch.no_grad(), _primitive_operators(), recorder, counter:
            module(*tensors)
    except Exception as error:  # noqa: BLE001 # forward is the user's own
        # The counter looks into modules its own way; a model that runs may fail under it.
        return MacCount(macs=None, reason=f"torch's counter failed: {typed_line(error)}", parameters=parameters)
    unknown = sorted(name for name in seen if _has_no_formula(name))
    if unknown:
        reason = f"no formula for the operator {', '.join(unknown)}"
        return MacCount(macs=None, reason=reason, parameters=parameters)
    return MacCount(macs=counter.get_total_flops() // (2 * samples), parameters=parameters)


def _more_formulas() -> dict[Any, Any]:
    """Return FLOP formulas, over shapes, for operators that torch's counter leaves out."""
    with needs("convert"):
        import torch
        from torch.utils.flop_counter import sdpa_flop_count

    def dot(left: Any, right: Any, *_: Any, **__: Any) -> int:
        return 2 * int(prod(left))

    def addmv(_bias: Any, matrix: Any, *_: Any, **__: Any) -> int:
        return 2 * int(prod(matrix))

    def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query, key, value))

    aten = torch.ops.aten
    return {
        aten.dot: dot,
        aten.mv: dot,
        aten.addmv: addmv,
        aten._scaled_dot_product_flash_attention_for_cpu: attention,
    }


def _recorder() -> tuple[Any, set[str]]:
    """Return a mode that records every operator that reaches torch's kernels, and the set it fills."""
    with needs("convert"):
        from torch.utils._python_dispatch import TorchDispatchMode
    seen: set[str] = set()

    class Recorder(TorchDispatchMode):  # type: ignore[misc] # torch has no usable types here
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(str(func))
            return func(*args, **(kwargs or {}))

    return Recorder(), seen


@contextlib.contextmanager
def _primitive_operators() -> Iterator[None]:
    """Switch off torch's fused kernels, which the counter cannot look into (an LSTM would count as nothing)."""
    with needs("convert"):
        import torch
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.backends.mkldnn.flags(enabled=False):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _has_no_formula(operator: str) -> bool:
    namespace, _, rest = operator.partition(".")
    return namespace not in ("aten", "prim", "prims") or rest.partition(".")[0] in _UNCOUNTED
