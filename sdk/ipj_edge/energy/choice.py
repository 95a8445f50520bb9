"""Which probe a measurement uses, and what was tried before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ipj_edge import plugins
from ipj_edge.energy.survey import look
from ipj_edge.errors import PluginError, ProbeError, ProbeUnavailableError
from ipj_edge.protocols import PowerProbe
from ipj_edge.values import Boundary, ProbeFacts, ProbeOptions

AUTO, NONE, MODEL = "auto", "none", "modelled"

# What may stand for a whole command where no target says more. A GPU's or a DRAM's energy alone never does.
WHOLE_MACHINE: tuple[Boundary, ...] = ("package", "module", "board", "wall", "battery", "rails")

# Work on the CPU is what the CPU-time model can see.
_CPU: frozenset[Boundary] = frozenset(("package", "process"))
NOT_ASKED = "no probe was asked for"
_RANKS = {"measured": 0, "vendor-modelled": 1, "mixed": 2, "modelled": 3}


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A probe that was not taken, why, and what would change that."""

    probe: str
    reason: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.probe}: {self.reason}" + (f" (fix: {self.fix})" if self.fix else "")


class ProbeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The probe to use.

    Attributes:
        name: Name of a probe, or ``none``.
        note: Why this one, where that is not what the user asked for; a reader of the figure has to know.
        tried: The probes that were looked at and not taken.
        is_model: Whether its figures are modelled, as far as that is known.
    """

    name: str
    note: str = ""
    tried: tuple[Tried, ...] = ()
    is_model: bool = False

    def __str__(self) -> str:
        return self.name


def choose_probe(
    name: str = AUTO,
    *,
    options: ProbeOptions | None = None,
    boundaries: Sequence[Boundary] | None = None,
    require_measured: bool = False,
    load: Callable[[str], PowerProbe] = plugins.load_probe,
    installed: Sequence[str] | None = None,
) -> ProbeChoice:
    """Choose a probe: the one named, or for ``auto`` the best permitted sensor that sees the target's work.

    ``auto`` never takes an external meter: which one hangs on which supply only the user knows. Without a sensor
    it takes the CPU-time model, labelled, unless the target's work is not done by the CPU: then there is no
    probe.

    Args:
        name: Name of a probe, ``auto`` or ``none``.
        options: What the user told the probes.
        boundaries: Boundaries that see the work, best first; None for a whole command.
        require_measured: Refuse a modelled figure.
        load: Loads a probe by name.
        installed: Names of the probes to choose from; None for all that are installed.

    Raises:
        PluginNotFoundError: no probe of that name.
        ProbeUnavailableError: nothing is measured although that was required; says what was tried and the fixes.
    """
    options = options or ProbeOptions()
    names = plugins.names(plugins.POWER_PROBES) if installed is None else tuple(installed)
    if name == NONE:
        choice = ProbeChoice(name=NONE, note=NOT_ASKED)
    elif name == AUTO:
        choice = _choose_sensor(names, options, boundaries, load)
    else:
        choice = ProbeChoice(name=name)
        if require_measured:
            _require_measured(name, options, load)
    if require_measured and (choice.name == NONE or choice.is_model):
        tried = "".join(f"; {one}" for one in choice.tried)
        raise ProbeUnavailableError(f"a measured figure is required, but {choice.note}{tried}")
    return choice


def check_named(name: str, options: ProbeOptions, load: Callable[[str], PowerProbe] = plugins.load_probe) -> None:
    """Refuse a probe that was asked for by its name and cannot be read here; ``auto`` and ``none`` are no such names.

    Raises:
        PluginNotFoundError: no probe of that name.
        ProbeUnavailableError: it cannot be read; says why, and the fix.
    """
    if name in (AUTO, NONE):
        return
    state = load(name).availability(options)
    if not state.available:
        raise ProbeUnavailableError(
            f"the probe was asked for by name: {Tried(probe=name, reason=state.reason, fix=state.fix)}"
        )


def _choose_sensor(
    names: Sequence[str],
    options: ProbeOptions,
    boundaries: Sequence[Boundary] | None,
    load: Callable[[str], PowerProbe],
) -> ProbeChoice:
    wanted = WHOLE_MACHINE if boundaries is None else tuple(boundaries)
    # A port belongs to the one meter it was given for, so it is not offered to every probe in turn.
    options = msgspec.structs.replace(options, port=None)
    found: list[ProbeFacts] = []
    tried: list[Tried] = []
    for name in names:
        if name != MODEL:
            _look_at(name, options, wanted, load, found, tried)
    if found:
        best = min(found, key=lambda facts: (wanted.index(facts.boundary), _RANKS[facts.provenance]))
        is_model = best.provenance == "modelled"
        note = f"the figures of '{best.name}' are modelled: {best.note}" if is_model else ""
        return ProbeChoice(name=best.name, note=note, tried=tuple(tried), is_model=is_model)
    return _without_sensor(wanted, MODEL in names, tuple(tried))


def _look_at(
    name: str,
    options: ProbeOptions,
    wanted: tuple[Boundary, ...],
    load: Callable[[str], PowerProbe],
    found: list[ProbeFacts],
    tried: list[Tried],
) -> None:
    try:
        probe = load(name)
        state = probe.availability(options)
        if not state.available:
            tried.append(Tried(probe=name, reason=state.reason, fix=state.fix))
            return
        facts, _ = look(probe, options)
    except (PluginError, ProbeError, OSError) as error:
        tried.append(Tried(probe=name, reason=str(error)))
        return
    if facts.boundary not in wanted:
        reason = f"its boundary, {facts.boundary}, is not one of {', '.join(wanted)}"
        tried.append(Tried(probe=name, reason=reason))
        return
    found.append(msgspec.structs.replace(facts, name=name))


def _without_sensor(wanted: tuple[Boundary, ...], has_model: bool, tried: tuple[Tried, ...]) -> ProbeChoice:
    sensors = f"no sensor that may be read here sees {', '.join(wanted)}"
    # A remedy that is a step to take on this machine belongs into the note; the port that an external meter needs
    # does not.
    sensors += "".join(f"; {one}" for one in tried if one.fix and "--port" not in one.fix)
    if has_model and (wanted is WHOLE_MACHINE or _CPU & set(wanted)):
        return ProbeChoice(name=MODEL, note=f"CPU time stands in: {sensors}", tried=tried, is_model=True)
    hint = "name an external meter with --probe and --port"
    return ProbeChoice(name=NONE, note=f"{sensors}; {hint}", tried=tried)


def _require_measured(name: str, options: ProbeOptions, load: Callable[[str], PowerProbe]) -> None:
    probe = load(name)
    state = probe.availability(options)
    if not state.available:
        raise ProbeUnavailableError(
            f"a measured figure is required: {Tried(probe=name, reason=state.reason, fix=state.fix)}"
        )
    if look(probe, options)[0].provenance == "modelled":
        raise ProbeUnavailableError(f"a measured figure is required, but '{name}' is a model; choose a sensor")
