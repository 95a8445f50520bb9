"""Quantities as people read them."""

import pytest

from ipj_edge.units import joules_text


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (0.0, "0 µJ"),
        (12.34e-6, "12.3 µJ"),
        (999.4e-6, "999 µJ"),
        # Rounded to three digits these are 1000 of the smaller unit, which reads 1e+03.
        (999.9e-6, "1 mJ"),
        (0.9999, "0.9999 J"),
        (-0.9999e-3, "-1 mJ"),
        (7.893, "7.893 J"),
        (123_456.7, "123457 J"),
    ],
)
def test_joules_are_written_without_powers_of_ten(joules, text):
    assert joules_text(joules) == text
