"""SCPI instruments on a serial line or a network socket: Yokogawa WT300 power meters, DC supplies and loads."""

from __future__ import annotations

from ipj_edge.errors import ConfigError, ProbeError, ProbeReadError, ProbeUnavailableError
from ipj_edge.protocols import EnergyCounter, PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.serial.asked_meter import AskedSampler
from ipj_edge_probes.serial.port import SerialPort, open_port, port_availability
from ipj_edge_probes.serial.scpi.line import ScpiLine, parse_number
from ipj_edge_probes.serial.scpi.models import UNKNOWN, ScpiKind, ScpiModel, find_model
from ipj_edge_probes.serial.scpi.wt300 import Wt300Counter

BAUD = 9600
POLL_S = 0.1


class ScpiProbe:
    """Measure with a bench instrument that answers ``*IDN?``.

    Options: ``port`` (``/dev/ttyUSB0@115200``, ``socket://192.168.1.20:5025``); ``select``: channel or element.
    """

    name = "scpi"

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether the port is there; see `ipj_edge.protocols.PowerProbe`."""
        return port_availability(self.name, options, None)

    def open(self, options: ProbeOptions) -> EnergyCounter | PowerSampler:
        """Open the instrument: a counter where it adds up energy itself, else a sampler.

        Raises:
            ConfigError: a channel that cannot be one.
            ProbeUnavailableError: no port, or no instrument at the port that measures power.
        """
        if options.select is not None and not options.select.isalnum():
            raise ConfigError(f"'scpi': {options.select!r} is no channel; give its number, or its name such as CH1")
        port = open_port(self.name, options, baud=BAUD)
        try:
            return connect(port, options.select)
        except ProbeError:
            port.close()
            raise


def connect(port: SerialPort, channel: str | None) -> EnergyCounter | PowerSampler:
    """Find out what is at a port and return the reader for it.

    Raises:
        ProbeUnavailableError: nothing that measures power.
    """
    line = ScpiLine(port)
    try:
        identity = line.query("*IDN?")
    except ProbeReadError as error:
        raise ProbeUnavailableError(
            f"no SCPI instrument answers at {port.name} ({error}); check the baud rate (--port PATH@BAUD)"
        ) from error
    model = find_model(identity)
    try:
        if model.kind is ScpiKind.INTEGRATOR:
            return Wt300Counter(line, identity, element=channel or model.channel, model=model)
        return AskedSampler(SupplyMeter(line, identity, channel=channel or model.channel, model=model))
    except ProbeReadError as error:
        raise ProbeUnavailableError(f"{identity} at {port.name} gives no power: {error}") from error


class SupplyMeter:
    """A DC supply or load that is asked for its power; see `ipj_edge_probes.serial.asked_meter.AskedMeter`."""

    interval_s = POLL_S

    def __init__(self, line: ScpiLine, identity: str, *, channel: str, model: ScpiModel) -> None:
        self.port = line.port
        self._line = line
        self._power = model.power.format(channel=channel)
        self._volts = model.volts.format(channel=channel)
        self._amps = model.amps.format(channel=channel)
        self._asks_power = model.kind is ScpiKind.POWER and self._knows_power()
        if not self._asks_power:
            self.measure()
        self.rails: tuple[Rail, ...] = (Rail(name=channel or "output", boundary=model.boundary),)
        self.facts = ProbeFacts(
            name="scpi",
            boundary=model.boundary,
            provenance="measured",
            update_interval_s=POLL_S,
            accuracy=model.accuracy,
            note=self._note(identity, model),
        )

    def measure(self) -> float:
        """Return the power in watts.

        Raises:
            ProbeReadError: no answer, or no number, no data, over range.
        """
        if self._asks_power:
            return parse_number(self._line.query(self._power))
        return parse_number(self._line.query(self._volts)) * parse_number(self._line.query(self._amps))

    def _knows_power(self) -> bool:
        """Try the question for power; an instrument that does not know it stays silent and notes error -113.

        Raises:
            ProbeReadError: it fails in another way.
        """
        try:
            parse_number(self._line.query(self._power))
        except ProbeReadError:
            if self._line.undefined_header():
                return False
            raise
        return True

    def _note(self, identity: str, model: ScpiModel) -> str:
        known = "" if model is not UNKNOWN else "; not in the table of known instruments"
        how = f"asked {self._power}" if self._asks_power else "volts and amperes asked one after the other"
        return f"{identity}; {how}{known}; polled, edges of a window are uncertain by {POLL_S:g} s"


_: type[PowerProbe] = ScpiProbe
