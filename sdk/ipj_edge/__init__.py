"""ipj-edge: intelligence per joule.

Load a bundle and run it, convert a model into bundles, measure joules. Names are imported when first used:
``import ipj_edge`` costs little more than numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipj_edge.benchmark import bench
    from ipj_edge.conversion import convert
    from ipj_edge.energy import Meter, measure
    from ipj_edge.runtime.model import Model, Result, load
    from ipj_edge.runtime.verification import verify

__version__ = "0.1.0"

_HOMES = {
    "Meter": "ipj_edge.energy",
    "Model": "ipj_edge.runtime.model",
    "Result": "ipj_edge.runtime.model",
    "bench": "ipj_edge.benchmark",
    "convert": "ipj_edge.conversion",
    "load": "ipj_edge.runtime.model",
    "measure": "ipj_edge.energy",
    "verify": "ipj_edge.runtime.verification",
}

__all__ = ["Meter", "Model", "Result", "bench", "convert", "load", "measure", "verify"]


def __getattr__(name: str) -> Any:
    """Import a public name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ipj_edge' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
