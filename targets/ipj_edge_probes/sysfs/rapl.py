"""Intel RAPL and its AMD twin: energy counters of the CPU package and its memory.

Two routes to the same registers: the powercap files, which need read permission for root-only files, and perf
events, which need ``perf_event_paranoid`` ≤ 0 or CAP_PERFMON. Powercap is taken where it may be read.
``select="perf"`` or ``select="powercap"`` names one.
"""

from __future__ import annotations

from pathlib import Path

from ipj_edge.errors import ProbeUnavailableError
from ipj_edge.protocols import EnergyCounter, PowerProbe
from ipj_edge.values import Availability, ProbeOptions
from ipj_edge_probes.sysfs.rapl_perf import PerfRoute
from ipj_edge_probes.sysfs.rapl_powercap import PowercapRoute
from ipj_edge_probes.sysfs.rapl_route import Route

_ROUTES = ("powercap", "perf")


class RaplProbe:
    """Finds and opens the RAPL counters."""

    name = "rapl"

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether the counters can be read, by which route, or what would permit it."""
        refusals = []
        for route in _routes(options):
            state = route.availability()
            if state.available:
                return state
            refusals.append(state)
        # The powercap files say most; perf only adds a second way out.
        fixes = " or ".join(state.fix for state in refusals if state.fix)
        return Availability(available=False, reason="; ".join(state.reason for state in refusals), fix=fixes)

    def open(self, options: ProbeOptions) -> EnergyCounter:
        """Open the counters by the first route that is permitted.

        Raises:
            ProbeUnavailableError: no counters, or no permission; says what to do.
        """
        for route in _routes(options):
            if route.availability().available:
                return route.open()
        state = self.availability(options)
        fix = f"; fix: {state.fix}" if state.fix else ""
        raise ProbeUnavailableError(f"{state.reason}{fix}")


def _routes(options: ProbeOptions) -> list[Route]:
    if options.select not in (None, *_ROUTES):
        raise ProbeUnavailableError(f"rapl has the routes powercap and perf, got select={options.select!r}")
    root = Path(options.sysfs_root)
    routes: dict[str, Route] = {"powercap": PowercapRoute(root), "perf": PerfRoute(root)}
    return [route for name, route in routes.items() if options.select in (None, name)]


_: type[PowerProbe] = RaplProbe
