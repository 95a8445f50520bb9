"""What the table of a bench says of its joules."""

import pytest

from ipj_edge.cli.printing.bench import _joules
from ipj_edge.values import EnergyPerInference


def _energy(value, low, high, accuracy):
    return EnergyPerInference(
        value=value, low=low, high=high, provenance="measured", boundary="wall", probe="scpi", windows=5,
        inferences=100, accuracy=accuracy,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "low", "high", "accuracy", "text"),
    [
        (2e-3, 1.9e-3, 2.1e-3, 0.5, "2 mJ ±5 %, gain ±50 %"),
        # A power analyser's ±0.15 % is not ±0 %.
        (2e-3, 1.999e-3, 2.001e-3, 0.0015, "2 mJ ±0.05 %, gain ±0.15 %"),
        (2e-3, None, None, None, "2 mJ"),
        (0.0, 0.0, 0.0, None, "0 µJ"),
    ],
)
def test_small_errors_are_not_shown_as_none(value, low, high, accuracy, text):
    assert _joules(_energy(value, low, high, accuracy)) == text
