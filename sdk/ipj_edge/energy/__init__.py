"""Joules: power probes read over windows, with provenance, boundary and an error bar."""

from __future__ import annotations

from ipj_edge.energy.attribution import per_inference
from ipj_edge.energy.cadence import measure_update_interval_s
from ipj_edge.energy.choice import ProbeChoice, check_named, choose_probe
from ipj_edge.energy.clocks import Clocks
from ipj_edge.energy.cost import Amount, Cost, Tariff, cost_of, load_tariff, tops_per_watt
from ipj_edge.energy.meter import Measurement, Meter, measure
from ipj_edge.energy.polling import PolledSampler
from ipj_edge.energy.rules import minimum_window_s
from ipj_edge.energy.survey import ProbeReport, survey
from ipj_edge.energy.totals import total
from ipj_edge.energy.windows import Window

__all__ = [
    "Amount",
    "Clocks",
    "Cost",
    "Measurement",
    "Meter",
    "PolledSampler",
    "ProbeChoice",
    "ProbeReport",
    "Tariff",
    "Window",
    "check_named",
    "choose_probe",
    "cost_of",
    "load_tariff",
    "measure",
    "measure_update_interval_s",
    "minimum_window_s",
    "per_inference",
    "survey",
    "tops_per_watt",
    "total",
]
