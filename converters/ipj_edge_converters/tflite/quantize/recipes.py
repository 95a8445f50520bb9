"""Recipes for ai-edge-quantizer that need no calibration, and operators left out of any recipe."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any

from ipj_edge.errors import ConversionError, first_line
from ipj_edge.plugins import needs
from ipj_edge_converters.quantization.keep_float import NamedOperator, matching
from ipj_edge_converters.tflite import file as tflite_file


def kept_operators(data: bytes, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the output tensors' names of the operators of a float file that patterns match.

    Raises:
        ConfigError: a pattern matches no operator.
    """
    if not patterns:
        return ()
    model = tflite_file.parse(data)
    kinds = tflite_file.operator_names(model)
    operators = [
        NamedOperator(kinds[operator.opcodeIndex], tflite_file.text(graph.tensors[operator.outputs[0]].name))
        for graph in model.subgraphs
        for operator in graph.operators or []
        if len(operator.outputs)
    ]
    return tuple(each.name for each in matching(patterns, operators))


def leave_out(recipe: Any, kept: Sequence[str]) -> None:
    """Leave operators, named by their first output tensor, in floating point; a later entry of a recipe wins.

    The quantizer names an operator by its output tensors, joined with semicolons.
    """
    with needs("convert"):
        from ai_edge_quantizer import algorithm_manager, qtyping
    for name in kept:
        recipe.add_quantization_config(
            regex=f"^{re.escape(name)}(;|$)",
            operation_name=qtyping.TFLOperationName.ALL_SUPPORTED,
            algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE,
        )


def dynamically_quantized(data: bytes, kept: Sequence[str]) -> bytes:
    """Return a float file with int8 weights whose activations are quantized anew in each inference.

    Raises:
        ConversionError: the quantizer failed on this model.
    """
    with needs("convert"):
        from ai_edge_quantizer import qtyping, recipe_manager
    recipe = recipe_manager.RecipeManager()
    recipe.add_dynamic_config(regex=".*", operation_name=qtyping.TFLOperationName.ALL_SUPPORTED, num_bits=8)
    leave_out(recipe, kept)
    return apply_recipe(data, recipe, None)


def with_half_weights(data: bytes, kept: Sequence[str]) -> bytes:
    """Return a float file with its weights in float16, each followed by a DEQUANTIZE that engines fold on loading.

    Raises:
        ConversionError: the quantizer failed on this model.
    """
    with needs("convert"):
        from ai_edge_quantizer import algorithm_manager, qtyping, recipe_manager
    weights = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
    recipe = recipe_manager.RecipeManager()
    recipe.add_quantization_config(
        regex=".*",
        operation_name=qtyping.TFLOperationName.ALL_SUPPORTED,
        op_config=qtyping.OpQuantizationConfig(
            weight_tensor_config=weights,
            compute_precision=qtyping.ComputePrecision.FLOAT,
            explicit_dequantize=True,
        ),
        algorithm_key=algorithm_manager.AlgorithmName.FLOAT_CASTING,
    )
    leave_out(recipe, kept)
    return apply_recipe(data, recipe, None)


def apply_recipe(data: bytes, recipe: Any, statistics: Any) -> bytes:
    """Return the file quantized by a recipe, with all its buffers inline.

    Raises:
        ConversionError: the quantizer failed on this model.
    """
    with needs("convert"):
        from ai_edge_quantizer import quantizer
    try:
        # One of its progress bars cannot be turned off.
        with redirect_stderr(io.StringIO()):
            engine = quantizer.Quantizer(bytearray(data), recipe.get_quantization_recipe())
            result = engine.quantize(statistics, enable_progress_bar=False, enable_progress_report=False)
    except (ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        raise ConversionError(f"ai-edge-quantizer failed on this model: {first_line(error)}") from error
    return tflite_file.inlined(bytes(result.quantized_model))
