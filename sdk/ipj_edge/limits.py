"""Ranges of the numbers that a user may give: the library and the command line hold to the same ones.

A number outside its range is refused before anything is run: it would ask for a run without an end, or for more memory
than there is. NaN lies in no range.
"""

from __future__ import annotations

from typing import NamedTuple

from ipj_edge.errors import ConfigError


class Range(NamedTuple):
    """The least and the largest value of a number, both allowed.

    Attributes:
        low: Least value.
        high: Largest value.
        unit: Unit of both; empty for a count.
        whole: Only whole numbers.
    """

    low: float
    high: float
    unit: str = ""
    whole: bool = False

    def check(self, name: str, value: float | None) -> None:
        """Refuse a value outside the range; None, which leaves the choice to us, is in every range.

        Raises:
            ConfigError: outside, not a number, or not whole where only whole numbers are.
        """
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            raise ConfigError(f"{name} is {value!r}: expected {self}")
        if not self.low <= value <= self.high:
            raise ConfigError(f"{name} is {value:g}{self._unit()}: expected {self}")

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {_text(self.low)} to {_text(self.high)}{self._unit()}"

    def _unit(self) -> str:
        return f" {self.unit}" if self.unit else ""


def _text(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


THREADS = Range(1, 1024, whole=True)
BATCH = Range(1, 65_536, whole=True)
WINDOWS = Range(1, 10_000, whole=True)
ROUNDS = Range(1, 1_000, whole=True)
SEED = Range(0, 2**32 - 1, whole=True)
WINDOW_S = Range(0.01, 3_600, "s")
DURATION_S = Range(0.01, 7 * 86_400, "s")
PACE_S = Range(1e-6, 3_600, "s")
TOLERANCE = Range(1e-12, 1e6)
SHARE = Range(1e-6, 1)
VOLTAGE_V = Range(0.1, 1_000, "V")
POWER_W = Range(0, 100_000, "W")
