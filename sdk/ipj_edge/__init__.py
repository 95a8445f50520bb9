"""ipj-edge: intelligence per joule.

Load a bundle and run it, convert a model into bundles, measure joules. Names are imported when first used:
``import ipj_edge`` costs little more than numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipj_edge.benchmark import BenchOptions, bench
    from ipj_edge.conversion import ConversionOptions, ConvertRequest, convert
    from ipj_edge.energy import Meter, measure
    from ipj_edge.errors import (
        AccuracyGateError,
        BundleError,
        ConfigError,
        ConversionError,
        DataError,
        DestinationError,
        EngineCrashError,
        InputError,
        IpjEdgeError,
        MissingDependencyError,
        MissingKernelError,
        ParityError,
        PluginError,
        PluginNotFoundError,
        ProbeError,
        ProbeReadError,
        ProbeUnavailableError,
        SampleLossError,
        SourceError,
        TargetError,
        TargetUnavailableError,
        UnsupportedError,
    )
    from ipj_edge.exits.policy.values import TuneRequest
    from ipj_edge.runtime.model import Model, Result, load
    from ipj_edge.runtime.verification import verify

__version__ = "0.1.0"

_HOMES = {
    "AccuracyGateError": "ipj_edge.errors",
    "BenchOptions": "ipj_edge.benchmark",
    "BundleError": "ipj_edge.errors",
    "ConfigError": "ipj_edge.errors",
    "ConversionError": "ipj_edge.errors",
    "ConversionOptions": "ipj_edge.conversion",
    "ConvertRequest": "ipj_edge.conversion",
    "DataError": "ipj_edge.errors",
    "DestinationError": "ipj_edge.errors",
    "EngineCrashError": "ipj_edge.errors",
    "InputError": "ipj_edge.errors",
    "IpjEdgeError": "ipj_edge.errors",
    "Meter": "ipj_edge.energy",
    "MissingDependencyError": "ipj_edge.errors",
    "MissingKernelError": "ipj_edge.errors",
    "Model": "ipj_edge.runtime.model",
    "ParityError": "ipj_edge.errors",
    "PluginError": "ipj_edge.errors",
    "PluginNotFoundError": "ipj_edge.errors",
    "ProbeError": "ipj_edge.errors",
    "ProbeReadError": "ipj_edge.errors",
    "ProbeUnavailableError": "ipj_edge.errors",
    "Result": "ipj_edge.runtime.model",
    "SampleLossError": "ipj_edge.errors",
    "SourceError": "ipj_edge.errors",
    "TargetError": "ipj_edge.errors",
    "TargetUnavailableError": "ipj_edge.errors",
    "TuneRequest": "ipj_edge.exits.policy.values",
    "UnsupportedError": "ipj_edge.errors",
    "bench": "ipj_edge.benchmark",
    "convert": "ipj_edge.conversion",
    "load": "ipj_edge.runtime.model",
    "measure": "ipj_edge.energy",
    "verify": "ipj_edge.runtime.verification",
}

__all__ = [
    "AccuracyGateError",
    "BenchOptions",
    "BundleError",
    "ConfigError",
    "ConversionError",
    "ConversionOptions",
    "ConvertRequest",
    "DataError",
    "DestinationError",
    "EngineCrashError",
    "InputError",
    "IpjEdgeError",
    "Meter",
    "MissingDependencyError",
    "MissingKernelError",
    "Model",
    "ParityError",
    "PluginError",
    "PluginNotFoundError",
    "ProbeError",
    "ProbeReadError",
    "ProbeUnavailableError",
    "Result",
    "SampleLossError",
    "SourceError",
    "TargetError",
    "TargetUnavailableError",
    "TuneRequest",
    "UnsupportedError",
    "bench",
    "convert",
    "load",
    "measure",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ipj_edge' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
