"""Inputs drawn for parity, and calibration sets, of models whose inputs are whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from ipj_edge.conversion.plan.calibration import check_calibration
from ipj_edge.conversion.plan.inputs import random_samples
from ipj_edge.errors import ConfigError, DataError
from ipj_edge.samples.data import fit
from ipj_edge.values import TensorSpec

TYPES = TensorSpec(name="token_type_ids", shape=("batch", 5), dtype="int64")
IMAGE = TensorSpec(name="image", shape=("batch", 5), dtype="float32")


def test_token_types_that_are_zero_everywhere_are_real_data() -> None:
    real = fit({"token_type_ids": np.zeros((4, 5), np.int64)}, None, (TYPES,), "here")
    check_calibration(real, (TYPES,), "here")
    assert not random_samples((TYPES,), 3, 0, real).arrays["token_type_ids"].any()
    with pytest.raises(ConfigError, match="nobody said which values it takes"):
        random_samples((TYPES,), 3, 0, None)


def test_a_float_input_that_never_changes_calibrates_nothing() -> None:
    dull = fit({"image": np.zeros((4, 5), np.float32)}, None, (IMAGE,), "here")
    with pytest.raises(DataError, match="everywhere; calibrate on real inputs"):
        check_calibration(dull, (IMAGE,), "here")


def test_an_infinite_value_in_real_data_does_not_make_random_inputs_infinite() -> None:
    data = fit({"image": np.array([[-np.inf, 1, 2, 3, 4]], np.float32)}, None, (IMAGE,), "here")
    drawn = random_samples((IMAGE,), 8, 0, data).arrays["image"]
    assert 1 <= drawn.min() < drawn.max() <= 4
    with pytest.raises(DataError, match="holds infinity"):
        check_calibration(data, (IMAGE,), "here")
