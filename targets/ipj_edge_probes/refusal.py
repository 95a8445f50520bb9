"""Why a probe cannot be used, kept in two parts: what is the matter, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ipj_edge.errors import MissingDependencyError, ProbeReadError, ProbeUnavailableError
from ipj_edge.values import Availability


class RefusalError(ProbeUnavailableError):
    """A probe that cannot be used here.

    Attributes:
        probe: Name of the probe.
        reason: What is the matter.
        fix: What to do about it; empty when nothing helps.
    """

    def __init__(self, probe: str, reason: str, fix: str = "") -> None:
        self.probe, self.reason, self.fix = probe, reason, fix
        super().__init__(f"'{probe}' cannot be used: {reason}" + (f"; {fix}" if fix else ""))


class UnreadableError(ProbeReadError):
    """A sensor that could not be read.

    Attributes:
        reason: What is the matter.
        fix: What to do about it; empty when nothing helps.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        self.reason, self.fix = reason, fix
        super().__init__(reason + (f"; {fix}" if fix else ""))


@contextmanager
def refusing(probe: str) -> Iterator[None]:
    """Make what cannot be read while a probe is being opened a refusal of that probe."""
    try:
        yield
    except UnreadableError as error:
        raise RefusalError(probe, error.reason, error.fix) from error
    except ProbeReadError as error:
        raise RefusalError(probe, str(error)) from error


def availability_of(find: Callable[[], str]) -> Availability:
    """Try what opening would do and say how it went.

    Args:
        find: Does what opening does short of sampling; returns what it found.
    """
    try:
        return Availability(available=True, reason=find())
    except RefusalError as error:
        return Availability(available=False, reason=error.reason, fix=error.fix)
    except MissingDependencyError as error:
        return Availability(
            available=False,
            reason=f"'{error.module}' is not installed",
            fix=error.fix,
        )
