"""Which whole numbers an input takes: declared, rows of a table, or the data's; what lies outside is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ipj_edge.cli.options.parse import tensor_spec
from ipj_edge.conversion.plan.calibration import check_calibration, check_whole_numbers
from ipj_edge.conversion.plan.inputs import random_samples
from ipj_edge.conversion.plan.integer_ranges import with_integer_ranges
from ipj_edge.errors import ConfigError, DataError, InputError
from ipj_edge.runtime.adaptation import InputAdapter
from ipj_edge.samples.data import fit
from ipj_edge.values import Port, TensorSpec

IDS = TensorSpec(name="ids", shape=("batch", 5), dtype="int64")
DECLARED = TensorSpec(name="ids", shape=("batch", 5), dtype="int64", value_range=(0.0, 30521.0))
PORT = Port(name="ids", engine_name="ids", shape=("batch", 5), dtype="int64")


def _real(*rows: list[int]) -> object:
    return fit({"ids": np.array(rows, np.int64)}, None, (IDS,), "here")


def test_drawn_ids_reach_both_ends_of_the_declared_range_whatever_the_calibration_holds() -> None:
    real = _real([3, 4, 5, 6, 7])
    drawn = random_samples((DECLARED,), 16, 0, real).arrays["ids"]
    assert (drawn.min(), drawn.max()) == (0, 30521)


def test_ids_outside_the_declared_range_are_refused_with_what_to_do() -> None:
    adapter = InputAdapter(DECLARED, PORT, refuse_nan=False)
    assert adapter.accept(np.array([[0, 1, 2, 3, 30521]])).shape == (1, 5)
    for wrong in (-1, 30522):
        with pytest.raises(InputError, match=rf"'ids' holds {wrong}, and takes 0 to 30521 .*--allow-out-of-range"):
            adapter.accept(np.array([[0, 1, 2, 3, wrong]]))
    allowed = InputAdapter(DECLARED, PORT, refuse_nan=False, check_range=False)
    assert allowed.accept(np.array([[0, 1, 2, 3, 30522]])).max() == 30522


def test_numbers_are_checked_before_they_are_narrowed() -> None:
    narrow = Port(name="ids", engine_name="ids", shape=(1, 5), dtype="int32")
    adapter = InputAdapter(DECLARED, narrow, refuse_nan=False)
    assert adapter.accept(np.array([[0, 1, 2, 3, 4]])).dtype == np.int32
    with pytest.raises(InputError, match=f"holds {2**40}"):
        adapter.accept(np.array([[0, 1, 2, 3, 2**40]]))


def test_without_a_declaration_the_data_decide_with_a_note() -> None:
    (spec,), notes = with_integer_ranges((IDS,), (), [_real([3, 4, 5, 6, 7]), _real([0, 0, 0, 0, 9])])
    assert spec.value_range == (0.0, 9.0)
    assert "'ids' takes 0 to 9" in notes[0]
    assert "--input ids:1x5:int64:LOW..HIGH" in notes[0]


def test_rows_of_a_table_are_widened_to_indices_from_its_end() -> None:
    table = TensorSpec(name="ids", shape=("batch", 5), dtype="int64", value_range=(0.0, 11.0))
    (spec,), notes = with_integer_ranges((table,), (), [_real([-1, 4, 5, 6, 7])])
    assert (spec.value_range, notes) == ((-1.0, 11.0), ())


def test_data_outside_what_was_declared_are_refused() -> None:
    (spec,), _ = with_integer_ranges((DECLARED,), ("ids",), [_real([0, 1, 2, 3, 30522])])
    assert spec.value_range == (0.0, 30521.0)
    for check in (check_calibration, check_whole_numbers):
        with pytest.raises(DataError, match="runs from 0 to 30522, declared is 0 to 30521"):
            check(_real([0, 1, 2, 3, 30522]), (spec,), "here")


def test_pixels_of_eight_bits_take_every_value() -> None:
    pixels = TensorSpec(name="image", shape=("batch", 2), dtype="uint8")
    real = fit({"image": np.array([[3, 9]], np.uint8)}, None, (pixels,), "here")
    assert with_integer_ranges((pixels,), (), [real]) == ((pixels,), ())
    port = Port(name="image", engine_name="image", shape=("batch", 2), dtype="uint8")
    assert InputAdapter(pixels, port, refuse_nan=False).accept(np.array([[0, 255]], np.uint8)).max() == 255


@pytest.mark.parametrize("text", ["x:1x4:int64:0..1.5", "x:1x4:uint8:0..256", "x:1x4:int32:0..inf", "x:2:uint8:-1..4"])
def test_a_range_that_its_dtype_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no range of"):
        tensor_spec(text)
