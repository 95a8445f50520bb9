"""Kinds of values that options take: numbers with a range, times with a unit."""

from __future__ import annotations

from typing import Any

import click

from ipj_edge.errors import ConfigError
from ipj_edge.limits import Range
from ipj_edge.units import seconds


class Number(click.ParamType):  # type: ignore[type-arg] # generic only since click 8.3
    """A number within a range; NaN and infinity are in none."""

    def __init__(self, within: Range) -> None:
        self._within = within
        self.name = "integer" if within.whole else "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number.

        Raises:
            click.BadParameter: none, or outside the range.
        """
        try:
            number = int(value) if self._within.whole else float(value)
            self._within.check("the value", number)
        except (ValueError, ConfigError):
            self.fail(f"{value!r}: expected {self._within}", param, ctx)
        return number


class Time(click.ParamType):  # type: ignore[type-arg] # generic only since click 8.3
    """A time: ``20ms``, ``1.5s``, ``2min``; a bare number is seconds."""

    name = "time"

    def __init__(self, within: Range) -> None:
        self._within = within

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds.

        Raises:
            click.BadParameter: no time, or outside the range.
        """
        if isinstance(value, float):
            return value
        try:
            time_s = seconds(str(value))
            self._within.check("the time", time_s)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return time_s
