"""What every target does when the engine cannot have a setting as it was asked for."""

from __future__ import annotations

from ipj_edge import host
from ipj_edge.bundles.manifest import Manifest
from ipj_edge.errors import TargetUnavailableError
from ipj_edge.values import Settings


def wanted_threads(settings: Settings) -> int:
    """Return the threads to ask the engine for."""
    return host.default_threads() if settings.threads is None else settings.threads


def require(settings: Settings, name: str, wanted: object, got: object) -> None:
    """Refuse a setting that the engine runs differently, unless the caller allows that.

    Raises:
        TargetUnavailableError: ``got`` is not ``wanted`` and no fall-back is allowed.
    """
    if got != wanted and not settings.allow_fallback:
        raise TargetUnavailableError(
            f"{name}: {wanted} was asked for, the engine gives {got}; ask for {got}, or allow the fall-back"
        )


def require_isa(manifest: Manifest, settings: Settings) -> None:
    """Refuse a bundle whose 8-bit products would saturate on this CPU.

    Raises:
        TargetUnavailableError: the bundle assumes VNNI, this CPU lacks it, and no fall-back is allowed.
    """
    if manifest.requires.isa == "vnni" and not host.has_vnni() and not settings.allow_fallback:
        raise TargetUnavailableError(
            f"bundle '{manifest.name}' is quantized for CPUs with VNNI, which this one lacks: its sums would "
            "saturate without a word; build it again with --isa avx2, or allow the fall-back"
        )
