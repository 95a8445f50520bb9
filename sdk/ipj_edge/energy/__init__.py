"""Joules: power probes read over windows, with provenance, boundary and an error bar."""

from __future__ import annotations

from ipj_edge.energy.attribution import per_inference, windows_needed
from ipj_edge.energy.cadence import measure_update_interval_s
from ipj_edge.energy.choice import ProbeChoice, choose_probe
from ipj_edge.energy.clocks import Clocks
from ipj_edge.energy.meter import Measurement, Meter, measure
from ipj_edge.energy.polling import PolledSampler
from ipj_edge.energy.rules import minimum_window_s
from ipj_edge.energy.windows import Window

__all__ = [
    "Clocks",
    "Measurement",
    "Meter",
    "PolledSampler",
    "ProbeChoice",
    "Window",
    "choose_probe",
    "measure",
    "measure_update_interval_s",
    "minimum_window_s",
    "per_inference",
    "windows_needed",
]
