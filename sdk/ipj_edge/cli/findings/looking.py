"""Looking at one target: whether it works here, without a faulty plugin ending the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipj_edge.protocols import Target
    from ipj_edge.values import Availability


def look_at(name: str) -> tuple[str, Target | None, Availability]:
    """Return a target and whether it works here; no target where its plugin is faulty."""
    from ipj_edge.errors import PluginError
    from ipj_edge.plugins import load_target
    from ipj_edge.values import Availability

    try:
        target = load_target(name)
    except PluginError as error:
        return name, None, Availability(available=False, reason=str(error))
    return name, target, target.availability()
