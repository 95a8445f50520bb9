"""Between the caller's arrays and the engine's: nothing is changed without a word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipj_edge.errors import InputError
from ipj_edge.runtime.adaptation import InputAdapter, output_adapter
from ipj_edge.values import Port, Quantization, TensorSpec


def _adapter(dtype: str, engine: str, *, quantized: bool = False, no_nan: bool = False) -> InputAdapter:
    spec = TensorSpec(name="x", shape=("batch", 3), dtype=dtype)
    quantization = Quantization(scale=0.5, zero_point=1) if quantized else None
    port = Port(name="x", engine_name="x", shape=(1, 3), dtype=engine, quantization=quantization)
    return InputAdapter(spec, port, refuse_nan=no_nan)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_whole_number_that_the_engine_cannot_hold_is_refused_and_not_wrapped(value: int) -> None:
    adapter = _adapter("int64", "int32")
    with pytest.raises(InputError, match=f"'x': {value} does not fit the engine's int32"):
        adapter.accept(np.array([[1, value, 3]]))
    assert adapter.accept(np.array([[1, 2**31 - 1, -(2**31)]])).tolist() == [[1, 2**31 - 1, -(2**31)]]


@pytest.mark.parametrize(
    ("dtype", "given"), [("int64", [[1.7, 2, 3]]), ("int64", [["1", "2", "3"]]), ("bool", [[0.5, 1, 0]])]
)
def test_python_numbers_are_not_rounded_to_fit(dtype: str, given: Any) -> None:
    with pytest.raises(InputError, match=f"'x': expected an array of {dtype}"):
        _adapter(dtype, dtype).accept(given)


@pytest.mark.parametrize(("dtype", "given"), [("uint8", [[1, 300, 2]]), ("int64", [[1, 2**70, 3]])])
def test_python_numbers_out_of_range_are_one_clear_line(dtype: str, given: Any) -> None:
    with pytest.raises(InputError, match=f"'x': expected an array of {dtype}"):
        _adapter(dtype, dtype).accept(given)


@pytest.mark.parametrize(
    ("dtype", "given"),
    [("float32", [[1, 2, 3]]), ("float32", [[1.5, 2, 3]]), ("uint8", [[1, 2, 255]]), ("bool", [[True, False, True]])],
)
def test_python_numbers_that_fit_are_taken(dtype: str, given: Any) -> None:
    accepted = _adapter(dtype, dtype).accept(given)
    assert accepted.dtype == dtype
    assert accepted.tolist() == given


def test_arrays_of_other_libraries_need_the_right_dtype_as_numpys_do() -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.ones((1, 3))

    with pytest.raises(InputError, match="expected dtype float32, got float64"):
        _adapter("float32", "float32").accept(Tensor())


@pytest.mark.parametrize(("engine", "quantized"), [("int8", True), ("float32", False)])
def test_nan_is_refused_where_integers_would_answer_something_plausible(engine: str, quantized: bool) -> None:
    adapter = _adapter("float32", engine, quantized=quantized, no_nan=True)
    with pytest.raises(InputError, match="'x' holds NaN"):
        adapter.accept(np.array([[1, np.nan, 3]], np.float32))
    adapter.accept(np.array([[1, np.inf, -np.inf]], np.float32))


def test_nan_goes_through_a_float_model() -> None:
    assert np.isnan(_adapter("float32", "float32").accept(np.full((1, 3), np.nan, np.float32))).all()


def test_answers_have_the_dtype_that_the_manifest_says() -> None:
    spec = TensorSpec(name="y", shape=("batch", 3), dtype="float64")
    port = Port(
        name="y", engine_name="y", shape=(1, 3), dtype="int8", quantization=Quantization(scale=0.5, zero_point=1)
    )
    real = output_adapter(port, spec)(np.array([[1, 2, 3]], np.int8), True)
    assert real.dtype == np.float64
    assert real.tolist() == [[0.0, 0.5, 1.0]]
