"""Between the caller's arrays and the engine's: checks, scales, rounding. The same for all targets."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any

import numpy as np

from ipj_edge.errors import InputError
from ipj_edge.protocols import Array
from ipj_edge.samples.data import shape_text
from ipj_edge.values import Port, TensorSpec

OutputAdapter = Callable[[Array, bool], Array]

# Kinds of dtype that Python numbers may come as, by the kind that is wanted.
_BECOMES = {"f": "biuf", "i": "iu", "u": "iu", "b": "b"}


class InputAdapter:
    """Checks one input against its spec and turns it into the engine's tensor.

    Args:
        spec: The input as callers see it.
        port: The input as the engine sees it.
        refuse_nan: Refuse NaN, which an engine that computes in integers would turn into some number.
        check_range: Refuse whole numbers outside the range that the spec declares.
        only_size: Why the first axis takes one size only; empty where any number of samples can be given.
    """

    __slots__ = ("_dtype", "_ndim", "_only_size", "_quantize", "_refuse_nan", "_spec", "_tail", "batched", "name")

    def __init__(
        self, spec: TensorSpec, port: Port, *, refuse_nan: bool, check_range: bool = True, only_size: str = ""
    ) -> None:
        self.name = spec.name
        self.batched = spec.batch_axis is not None
        self._spec = spec
        self._only_size = "" if self.batched else only_size
        self._dtype = np.dtype(spec.dtype)
        self._ndim = len(spec.shape)
        self._tail = spec.shape[1:] if self.batched else spec.shape
        self._refuse_nan = refuse_nan and self._dtype.kind == "f"
        self._quantize = quantizer(port) or _caster(port, spec)
        if check_range and spec.value_range is not None and declares_less(spec):
            self._quantize = _checked(self._quantize, spec.name, spec.value_range)

    def rows(self, array: Array) -> int:
        """Return the number of samples in an accepted array."""
        return array.shape[0] if self.batched else 1

    def accept(self, value: Any) -> Array:
        """Return the engine's tensor for one input.

        Raises:
            InputError: wrong shape or dtype, or a value that the engine cannot hold.
        """
        array = value if isinstance(value, np.ndarray) else self._from_python(value)
        if array.dtype != self._dtype:
            raise InputError(
                f"'{self.name}': expected dtype {self._dtype}, got {array.dtype}; convert with .astype('{self._dtype}')"
            )
        if self.batched and array.ndim == self._ndim - 1:
            array = array[None]
        if (array.shape[1:] if self.batched else array.shape) != self._tail and not self._fits(array):
            why = f"; one size only: {self._only_size}" if self._only_size else ""
            raise InputError(f"'{self.name}': expected shape {shape_text(self._spec)}, got {np.shape(value)}{why}")
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        if self._refuse_nan and array.size and isnan(np.vdot(array, array)):
            raise InputError(f"'{self.name}' holds NaN, which an int8 model would answer as if it were a number")
        return array if self._quantize is None else self._quantize(array)

    def _from_python(self, value: Any) -> Array:
        """Make an array of Python numbers, which may become floats but are never rounded; others keep their dtype."""
        try:
            array = np.asarray(value)
            if hasattr(value, "__array__"):
                return array
            if array.dtype.kind in _BECOMES[self._dtype.kind]:
                return np.asarray(value, dtype=self._dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"'{self.name}': expected an array of {self._dtype}: {error}") from error
        raise InputError(
            f"'{self.name}': expected an array of {self._dtype}; got {type(value).__name__} of {array.dtype}"
        )

    def _fits(self, array: Array) -> bool:
        """Compare shapes where sizes beyond the batch may be dynamic."""
        shape = array.shape[1:] if self.batched else array.shape
        if array.ndim != self._ndim:
            return False
        return all(isinstance(want, str) or want == have for want, have in zip(self._tail, shape, strict=True))


def declares_less(spec: TensorSpec) -> bool:
    """Say whether a spec declares a narrower range of whole numbers than its dtype can hold."""
    kind = np.dtype(spec.dtype)
    if spec.value_range is None or kind.kind not in "iu":
        return False
    limits = np.iinfo(kind)
    return spec.value_range[0] > limits.min or spec.value_range[1] < limits.max


def _checked(
    convert: Callable[[Array], Array] | None, name: str, limits: tuple[float, float]
) -> Callable[[Array], Array]:
    """Return the same conversion after a check of the values: an index outside a table has no right answer."""
    low, high = limits

    def check(array: Array) -> Array:
        if array.size and (array.min() < low or array.max() > high):
            wrong = array.min() if array.min() < low else array.max()
            raise InputError(
                f"'{name}' holds {wrong}, and takes {low:.0f} to {high:.0f} only: outside that range the model was "
                "never proven (load with allow_out_of_range=True, or --allow-out-of-range, to run it all the same)"
            )
        return array if convert is None else convert(array)

    return check


def quantizer(port: Port) -> Callable[[Array], Array] | None:
    """Return a function from real values to the engine's integers: divide, round half to even, shift, clip."""
    if port.quantization is None:
        return None
    kind = np.dtype(port.dtype)
    limits = np.iinfo(kind)
    inverse = np.float32(1.0 / port.quantization.scale)
    zero = np.float32(port.quantization.zero_point)
    low, high = np.float32(limits.min), np.float32(limits.max)

    def quantize(array: Array) -> Array:
        values = np.multiply(array, inverse, dtype=np.float32)
        np.rint(values, out=values)
        np.add(values, zero, out=values)
        np.maximum(values, low, out=values)
        np.minimum(values, high, out=values)
        return values.astype(kind)

    return quantize


def _caster(port: Port, spec: TensorSpec) -> Callable[[Array], Array] | None:
    """Return a function to the engine's dtype where that is another one, e.g. float16 for float32."""
    wanted, given = np.dtype(port.dtype), np.dtype(spec.dtype)
    if wanted == given or wanted.kind != given.kind:
        return None
    if wanted.kind in "iu" and wanted.itemsize < given.itemsize:
        return lambda array: _narrowed(array, wanted, spec.name)
    return lambda array: array.astype(wanted)


def _narrowed(array: Array, wanted: np.dtype[Any], name: str) -> Array:
    """Return the same whole numbers in fewer bits.

    Raises:
        InputError: one does not fit; numpy would wrap it.
    """
    limits = np.iinfo(wanted)
    for value in (array.min(initial=0), array.max(initial=0)):
        if not limits.min <= value <= limits.max:
            raise InputError(f"'{name}': {value} does not fit the engine's {wanted}")
    return array.astype(wanted)


def output_adapter(port: Port, spec: TensorSpec | None = None) -> OutputAdapter:
    """Return a function from the engine's tensor to the caller's real values, in the dtype of spec if given."""
    wanted, given = np.dtype(port.dtype if spec is None else spec.dtype), np.dtype(port.dtype)
    if port.quantization is None and wanted != given and wanted.kind == given.kind:
        return lambda array, _copy: array.astype(wanted)
    if port.quantization is None:
        return lambda array, copy: array.copy() if copy else array
    scale, zero = np.float32(port.quantization.scale), np.float32(port.quantization.zero_point)

    def dequantize(array: Array, _copy: bool) -> Array:
        values = np.subtract(array, zero, dtype=np.float32)
        return np.multiply(values, scale, out=values)

    if spec is not None and wanted.kind == "f" and wanted != np.float32:
        return lambda array, copy: dequantize(array, copy).astype(wanted)
    return dequantize
