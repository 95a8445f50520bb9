"""Power probe ``ipmi``: what a server's management controller says it draws (IPMI DCMI, by ``ipmitool``)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from ipj_edge.energy.polling import PolledSampler
from ipj_edge.protocols import PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.programs.program import find_program, output_of
from ipj_edge_probes.refusal import UnreadableError, availability_of, refusing

_RAIL = "node"
_UPDATE_S = 1.0
_TIMEOUT_S = 10.0
_INSTANT = re.compile(r"Instantaneous power reading:\s*(\d+)\s*Watts", re.IGNORECASE)
_STATE = re.compile(r"Power reading state is:\s*(\S+)", re.IGNORECASE)


class IpmiProbe:
    """Measures the whole node, or the whole chassis where several nodes share it."""

    name = "ipmi"

    def __init__(self, clock: Callable[[], float] = time.monotonic, timeout_s: float = _TIMEOUT_S) -> None:
        self._clock, self._timeout_s = clock, timeout_s

    def availability(self, options: ProbeOptions) -> Availability:
        """Say what the controller reads now, or why it cannot be asked."""
        return availability_of(lambda: f"the controller reads {self._reader(options)[1]:g} W")

    def open(self, options: ProbeOptions) -> PowerSampler:
        """Open the controller's power reading.

        Raises:
            ProbeUnavailableError: no ipmitool, no permission, or no power reading.
        """
        reader, _ = self._reader(options)
        rails = (Rail(name=_RAIL, boundary="wall"),)
        return PolledSampler(FACTS, rails, reader, _UPDATE_S, clock=self._clock)

    def _reader(self, options: ProbeOptions) -> tuple[IpmiReader, float]:
        with refusing(self.name):
            program = find_program("ipmitool", options.search_path, "install ipmitool")
            reader = IpmiReader(program, self._timeout_s)
            return reader, reader()[_RAIL]


class IpmiReader:
    """Asks the controller once a call."""

    def __init__(self, program: str, timeout_s: float) -> None:
        self._command, self._timeout_s = (program, "dcmi", "power", "reading"), timeout_s

    def __call__(self) -> dict[str, float]:
        """Return the node's watts.

        Raises:
            ProbeReadError: the controller gives no power reading.
        """
        try:
            return {_RAIL: parse_dcmi(output_of(self._command, self._timeout_s))}
        except UnreadableError as error:
            if "/dev/ipmi" in error.reason:
                raise UnreadableError(error.reason, "run as root, with the kernel module ipmi_devintf") from error
            raise


def parse_dcmi(text: str) -> float:
    """Return the watts in what ``ipmitool dcmi power reading`` prints.

    Raises:
        UnreadableError: the reading is deactivated, 0 W (phosphor-host-ipmid#167) or not there.
    """
    state, instant = _STATE.search(text), _INSTANT.search(text)
    if state is not None and state[1].lower() != "activated":
        raise UnreadableError(f"the controller's power reading is {state[1]}", "ipmitool dcmi power activate")
    if instant is None:
        raise UnreadableError("'ipmitool dcmi power reading' printed no instantaneous power")
    if int(instant[1]) == 0:
        raise UnreadableError("the controller reads 0 W: it has no power sensor behind DCMI")
    return float(instant[1])


FACTS = ProbeFacts(
    name="ipmi",
    boundary="wall",
    provenance="measured",
    update_interval_s=_UPDATE_S,
    resolution_w=1.0,
    note="whole watts; update interval not stated, 1 s assumed; a chassis with several nodes may be read as one",
)


_: type[PowerProbe] = IpmiProbe
