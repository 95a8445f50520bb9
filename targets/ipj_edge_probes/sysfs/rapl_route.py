"""What both routes to the RAPL counters share: their contract, and what the processor's maker says of the
figures.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from ipj_edge.protocols import EnergyCounter
from ipj_edge.values import Availability, Boundary, ProbeFacts, Provenance

# "About every 1 ms with jitter": Khan et al., "RAPL in action", ACM TOMPECS 2018.
UPDATE_INTERVAL_S = 0.001

# No package draws this much; a step that implies it is not energy.
MAX_POWER_W = 2000.0

# Sandy Bridge and Ivy Bridge model their energy; from Haswell on it is sensed (Hackenberg et al. 2015).
_MODELLED_INTEL = {0x2A, 0x2D, 0x3A, 0x3E}
_AMD_NOTE = "AMD models this counter, it is not sensed (Schöne et al., arXiv 2108.00808)"
_OLD_INTEL_NOTE = "before Haswell this counter is modelled, not sensed"


class Route(Protocol):
    """A way to the counters."""

    def availability(self) -> Availability:
        """Say whether this way is open, or what would open it."""

    def open(self) -> EnergyCounter:
        """Open the counters. Raises ProbeUnavailableError."""


def facts(sysfs: Path, *, quantum_j: float, heartbeat_s: float | None, notes: list[str]) -> ProbeFacts:
    """Return the facts of the RAPL counters of this machine."""
    provenance, maker_note = _origin(sysfs)
    note = "; ".join(text for text in (maker_note, *notes) if text)
    return ProbeFacts(
        name="rapl",
        boundary="package",
        provenance=provenance,
        update_interval_s=UPDATE_INTERVAL_S,
        quantum_j=quantum_j,
        note=note,
        heartbeat_s=heartbeat_s,
    )


def is_amd(sysfs: Path) -> bool:
    """Say whether the processor is AMD's, or Hygon's of the same design."""
    return _cpu(sysfs)[0] in (0x02, 0x09)


def rail_boundary(name: str) -> tuple[Boundary, bool]:
    """Return a rail's boundary, and whether its energy is added up, from the zone's name without its number.

    Package and DRAM are added: the DRAM zone is a child in sysfs, but its energy is not in the package's counter.
    core and uncore are parts of the package. psys holds the package and more of the platform than anyone says.
    """
    if name.startswith("package"):
        return "package", True
    if name.startswith("dram"):
        return "dram", True
    return ("board" if name.startswith("psys") else "package"), False


def _origin(sysfs: Path) -> tuple[Provenance, str]:
    vendor, family, model = _cpu(sysfs)
    if is_amd(sysfs):
        return "vendor-modelled", _AMD_NOTE
    if vendor == 0x00 and family == 6 and model in _MODELLED_INTEL:
        return "vendor-modelled", _OLD_INTEL_NOTE
    return "measured", ""


def _cpu(sysfs: Path) -> tuple[int, int, int]:
    """Return vendor (0 Intel, 2 AMD, 9 Hygon), family and model from the kernel's x86 modalias; -1 where
    unknown.
    """
    try:
        text = (sysfs / "devices/system/cpu/modalias").read_text()
    except OSError:
        return -1, -1, -1
    found = re.search(r"ven([0-9A-F]{4})fam([0-9A-F]{4})mod([0-9A-F]{4})", text)
    if found is None:
        return -1, -1, -1
    vendor, family, model = (int(part, 16) for part in found.groups())
    return vendor, family, model
