"""Conversion: plan, calibrate, convert, prove in a child process, gate, publish."""

from ipj_edge.conversion.pipeline import convert
from ipj_edge.conversion.plan.request import ConvertRequest, Outcome
from ipj_edge.values import ConversionOptions

__all__ = ["ConversionOptions", "ConvertRequest", "Outcome", "convert"]
