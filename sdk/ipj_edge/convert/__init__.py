"""Conversion: plan, calibrate, convert, prove in a child process, gate, publish."""

from ipj_edge.convert.pipeline import convert
from ipj_edge.convert.request import ConvertRequest, Outcome

__all__ = ["ConvertRequest", "Outcome", "convert"]
