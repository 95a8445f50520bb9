"""Power probe ``rpi5``: the power chip of a Raspberry Pi 5, by ``vcgencmd pmic_read_adc``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from ipj_edge.energy.polling import PolledSampler
from ipj_edge.protocols import PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.programs.program import find_program, output_of
from ipj_edge_probes.refusal import RefusalError, UnreadableError, availability_of, refusing

# A fit of many users' wall figures to the sum of the rails; not a calibration of this board.
BOARD_FIT = "board-fit"
_FIT_GAIN, _FIT_OFFSET_W = 1.1451, 0.5879

_BOARD = "board"
_UPDATE_S = 0.1
# Each poll starts a process; more often would heat what is being measured.
_POLL_S = 0.2
_TIMEOUT_S = 5.0

_LINE = re.compile(r"^\s*(\S+)_([AV])\s+(?:current|volt)\(\d+\)=(-?[\d.]+)[AV]\s*$", re.MULTILINE)


class Rpi5Probe:
    """Sums voltage times current of the chip's rails; selecting ``board-fit`` estimates the board from them."""

    name = "rpi5"

    def __init__(self, clock: Callable[[], float] = time.monotonic, timeout_s: float = _TIMEOUT_S) -> None:
        self._clock, self._timeout_s = clock, timeout_s

    def availability(self, options: ProbeOptions) -> Availability:
        """Say which rails are read, or why there are none."""
        return availability_of(lambda: f"{len(self._reader(options)[1])} rails of the power chip")

    def open(self, options: ProbeOptions) -> PowerSampler:
        """Open the power chip.

        Raises:
            ProbeUnavailableError: not a Raspberry Pi 5, no vcgencmd, or no permission.
        """
        reader, power_w = self._reader(options)
        if options.select is None:
            rails = tuple(Rail(name=rail, boundary="rails") for rail in power_w)
            return PolledSampler(RAIL_FACTS, rails, reader, _POLL_S, clock=self._clock)
        rails = (Rail(name=_BOARD, boundary="board"),)
        return PolledSampler(FIT_FACTS, rails, lambda: board_fit(reader()), _POLL_S, clock=self._clock)

    def _reader(self, options: ProbeOptions) -> tuple[Rpi5Reader, dict[str, float]]:
        if options.select not in (None, BOARD_FIT):
            raise RefusalError(self.name, f"no '{options.select}' to select", f"select '{BOARD_FIT}' or nothing")
        with refusing(self.name):
            fix = "this probe is for Raspberry Pi OS on a Raspberry Pi 5"
            reader = Rpi5Reader(find_program("vcgencmd", options.search_path, fix), self._timeout_s)
            return reader, reader()


class Rpi5Reader:
    """Asks the power chip once a call."""

    def __init__(self, program: str, timeout_s: float) -> None:
        self._command, self._timeout_s = (program, "pmic_read_adc"), timeout_s

    def __call__(self) -> dict[str, float]:
        """Return watts by rail.

        Raises:
            ProbeReadError: the chip gives no figures.
        """
        try:
            return parse_pmic(output_of(self._command, self._timeout_s))
        except UnreadableError as error:
            if "/dev/vcio" in error.reason or "VCHI" in error.reason:
                raise UnreadableError(error.reason, "add this user to the group 'video' and log in again") from error
            raise


def parse_pmic(text: str) -> dict[str, float]:
    """Return watts by rail from what ``vcgencmd pmic_read_adc`` prints: volts times amperes of each pair.

    Raises:
        UnreadableError: no rail has both (older models answer with an error), or one is negative.
    """
    found: dict[str, dict[str, float]] = {}
    for rail, unit, value in _LINE.findall(text):
        found.setdefault(rail, {})[unit] = float(value)
    power_w = {rail: pair["A"] * pair["V"] for rail, pair in found.items() if len(pair) == 2}
    if not power_w:
        said = " ".join(text.split())[:80] or "nothing"
        raise UnreadableError(f"'vcgencmd pmic_read_adc' said: {said}", "only a Raspberry Pi 5 has this power chip")
    backwards = [rail for rail, value in power_w.items() if value < 0]
    if backwards:
        raise UnreadableError(f"{', '.join(backwards)} reads negative power")
    return power_w


def board_fit(power_w: dict[str, float]) -> dict[str, float]:
    """Estimate what the board draws, in watts, from the watts of its rails."""
    return {_BOARD: _FIT_GAIN * sum(power_w.values()) + _FIT_OFFSET_W}


RAIL_FACTS = ProbeFacts(
    name="rpi5",
    boundary="rails",
    provenance="measured",
    update_interval_s=max(_UPDATE_S, _POLL_S),
    note="rails behind the power chip: USB, 5 V loads and conversion losses are not in it",
)

FIT_FACTS = ProbeFacts(
    name="rpi5",
    boundary="board",
    provenance="modelled",
    update_interval_s=max(_UPDATE_S, _POLL_S),
    note=f"estimated from the rails: {_FIT_GAIN:g} times their sum plus {_FIT_OFFSET_W:g} W, a fit made by users",
)


_: type[PowerProbe] = Rpi5Probe
