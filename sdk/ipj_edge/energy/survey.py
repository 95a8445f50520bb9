"""What one probe is and whether it works here, for lists of probes."""

from __future__ import annotations

import msgspec

from ipj_edge import plugins
from ipj_edge.errors import MissingDependencyError, PluginError, PluginNotFoundError, ProbeError
from ipj_edge.protocols import EnergyCounter, PowerProbe
from ipj_edge.values import ProbeFacts, ProbeOptions, Rail


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A probe as it is here.

    Attributes:
        name: Name of the probe.
        available: Whether it can be used now.
        reason: Why not, or what it found.
        fix: What would make it available; empty when nothing is known.
        facts: What is known of its figures; None when it could not be opened.
        rails: What it measures.
    """

    name: str
    available: bool
    reason: str = ""
    fix: str = ""
    facts: ProbeFacts | None = None
    rails: tuple[Rail, ...] = ()


def survey(name: str, options: ProbeOptions) -> ProbeReport:
    """Look at one probe; opens it, and closes it again, to learn its facts.

    Raises:
        PluginNotFoundError: no probe of that name.
    """
    try:
        probe = plugins.load_probe(name)
        state = probe.availability(options)
    except MissingDependencyError as error:
        return ProbeReport(name=name, available=False, reason=f"needs '{error.module}'", fix=error.fix)
    except PluginNotFoundError:
        raise
    except (PluginError, ProbeError, OSError) as error:
        return ProbeReport(name=name, available=False, reason=str(error))
    if not state.available:
        return ProbeReport(name=name, available=False, reason=state.reason, fix=state.fix)
    try:
        facts, rails = look(probe, options)
    except (ProbeError, MissingDependencyError, OSError) as error:
        return ProbeReport(name=name, available=False, reason=str(error), fix=state.fix)
    return ProbeReport(name=name, available=True, reason=state.reason, facts=facts, rails=rails)


def look(probe: PowerProbe, options: ProbeOptions) -> tuple[ProbeFacts, tuple[Rail, ...]]:
    """Open a probe to learn its facts and rails, and close it again.

    Raises:
        ProbeUnavailableError: it cannot be opened.
    """
    sensor = probe.open(options)
    try:
        return sensor.facts, sensor.rails
    finally:
        if isinstance(sensor, EnergyCounter):
            sensor.close()
        else:
            sensor.stop()
