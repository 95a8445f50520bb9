"""Conversion: plan, calibrate, convert, prove in a child process, gate, publish."""

from ipj_edge.conversion.pipeline import convert
from ipj_edge.conversion.plan.request import ConvertRequest, Outcome

__all__ = ["ConvertRequest", "Outcome", "convert"]
