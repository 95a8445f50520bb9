"""Yokogawa WT300 series: the instrument integrates energy without gaps; this reads its watt-hours.

Commands: communication interface manual of the WT300 series. Answers come in the short form (``STAR``), so states
are compared by prefix.
"""

from __future__ import annotations

import logging
import time

from ipj_edge.errors import ProbeError, ProbeReadError, ProbeUnavailableError
from ipj_edge.protocols import EnergyCounter
from ipj_edge.values import ProbeFacts, Rail
from ipj_edge_probes.serial.scpi.line import ScpiLine, parse_number, resolution
from ipj_edge_probes.serial.scpi.models import ScpiModel

logger = logging.getLogger(__name__)

JOULES_PER_WATT_HOUR = 3600.0
UPDATE_S = 0.1
START_TIMEOUT_S = 3.0
RAIL = "wall"


class Wt300Counter:
    """Energy since this was opened; see `ipj_edge.protocols.EnergyCounter`.

    Ranges, wiring and filters stay as they were set at the instrument: no ``*RST``.
    """

    def __init__(self, line: ScpiLine, identity: str, *, element: str, model: ScpiModel) -> None:
        self._line = line
        self._identity = identity
        self._model = model
        self._last = (0.0, 0.0)
        self._closed = False
        self.rails: tuple[Rail, ...] = (Rail(name=RAIL, boundary=model.boundary),)
        self._integrate(element)
        self.facts = self._facts(0.0)
        self.read()

    def read(self) -> tuple[float, dict[str, float]]:
        """Return (monotonic seconds, joules since the integration began).

        Raises:
            ProbeReadError: no answer, no data, over range, or the integration is not what this started.
        """
        state = self._line.query(":INTEGRATE:STATE?").upper()
        if not state.startswith("STAR"):
            raise ProbeReadError(f"'scpi': the integration of the WT300 does not run any more (state {state})")
        asked_s = time.monotonic()
        reply = self._line.query(":NUMERIC:NORMAL:VALUE?")
        answered_s = time.monotonic()
        fields = reply.split(",")
        if len(fields) != 2:
            raise ProbeReadError(f"'scpi': the WT300 answers {reply!r} where watt-hours and seconds were expected")
        watt_hours, elapsed_s = parse_number(fields[0]), parse_number(fields[1])
        step_wh = resolution(fields[0])
        self._check(watt_hours, elapsed_s, step_wh)
        self.facts = self._facts(step_wh * JOULES_PER_WATT_HOUR)
        return (asked_s + answered_s) / 2, {RAIL: watt_hours * JOULES_PER_WATT_HOUR}

    def close(self) -> None:
        """Stop the integration and release the port. Calling twice is allowed."""
        if self._closed:
            return
        self._closed = True
        try:
            self._line.write(":INTEGRATE:STOP")
            self._line.write(":COMMUNICATE:REMOTE OFF")
        except ProbeError as error:
            logger.debug("scpi: %s", error)
        self._line.port.close()

    def _integrate(self, element: str) -> None:
        for command in (
            ":COMMUNICATE:REMOTE ON",
            ":COMMUNICATE:HEADER OFF",
            ":RATE 100MS",
            ":NUMERIC:FORMAT ASCII",
            f":NUMERIC:NORMAL:ITEM1 WH,{element}",
            f":NUMERIC:NORMAL:ITEM2 TIME,{element}",
            ":NUMERIC:NORMAL:NUMBER 2",
            ":INTEGRATE:STOP",
            ":INTEGRATE:MODE NORMAL",
            ":INTEGRATE:TIMER 0,0,0",
            ":INTEGRATE:RESET",
            ":INTEGRATE:START",
        ):
            self._line.write(command)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not (state := self._line.query(":INTEGRATE:STATE?").upper()).startswith("STAR"):
            if state.startswith("ERR") or time.monotonic() > deadline_s:
                raise ProbeUnavailableError(
                    f"the WT300 does not integrate (state {state}): take it out of hold and clear its error"
                )
            time.sleep(UPDATE_S / 2)
        self._wait_for_update()

    def _wait_for_update(self) -> None:
        """Wait for a figure of the new integration: until the next update the old one, or none, is shown."""
        time.sleep(2 * UPDATE_S)

    def _check(self, watt_hours: float, elapsed_s: float, step_wh: float) -> None:
        last_wh, last_s = self._last
        if elapsed_s < last_s:
            raise ProbeReadError("'scpi': the integration of the WT300 was started anew, perhaps at its front panel")
        if watt_hours < last_wh - step_wh:
            raise ProbeReadError("'scpi': the watt-hours of the WT300 run backwards: turn the current terminals around")
        self._last = (watt_hours, elapsed_s)

    def _facts(self, quantum_j: float) -> ProbeFacts:
        return ProbeFacts(
            name="scpi",
            boundary=self._model.boundary,
            provenance="measured",
            update_interval_s=UPDATE_S,
            quantum_j=quantum_j,
            accuracy=self._model.accuracy,
            note=f"{self._identity}; integrated by the instrument; basic accuracy at 50/60 Hz",
        )


_: type[EnergyCounter] = Wt300Counter
