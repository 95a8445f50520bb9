"""RuiDeng UM24C, UM25C and UM34C USB meters, over the serial port of their Bluetooth link."""

from __future__ import annotations

import time

from ipj_edge.errors import ProbeError, ProbeReadError, ProbeUnavailableError
from ipj_edge.protocols import PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.serial.asked_meter import AskedSampler
from ipj_edge_probes.serial.port import SerialPort, discard_input, open_port, port_availability
from ipj_edge_probes.serial.um25c.decode import UmRecord, find_record

BAUD = 9600
ASK = b"\xf0"
REPLY_TIMEOUT_S = 1.0
BREAK_S = 0.25  # a record that pauses this long will not be finished
TRIES = 3
REFRESH_S = 0.5
# Stated for the UM25C: volts ±(0.05 % + 2 digits), amperes ±(0.1 % + 4 digits).
ACCURACY = {"UM25C": 0.0015}


class Um25cProbe:
    """Measure a USB supply with a UM25C (or UM24C, UM34C).

    Options: ``port``, e.g. ``/dev/rfcomm0`` after ``sudo rfcomm bind 0 ADDRESS``.
    """

    name = "um25c"

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether the port is there; see `ipj_edge.protocols.PowerProbe`."""
        return port_availability(self.name, options, None)

    def open(self, options: ProbeOptions) -> PowerSampler:
        """Open the meter and read it once.

        Raises:
            ProbeUnavailableError: no port, or no meter at the port.
        """
        port = open_port(self.name, options, baud=BAUD)
        try:
            return AskedSampler(UmMeter(port))
        except ProbeError:
            port.close()
            raise


class UmMeter:
    """One meter at a port; see `ipj_edge_probes.serial.asked_meter.AskedMeter`."""

    interval_s = REFRESH_S / 2
    rails: tuple[Rail, ...] = (Rail(name="usb", boundary="board"),)

    def __init__(self, port: SerialPort) -> None:
        self.port = port
        try:
            model = self.read().model
        except ProbeReadError as error:
            raise ProbeUnavailableError(
                f"no UM24C, UM25C or UM34C answers at {port.name} ({error}); "
                "is it paired (sudo rfcomm bind 0 ADDRESS) and no telephone connected to it?"
            ) from error
        self.facts = ProbeFacts(
            name="um25c",
            boundary="board",
            provenance="measured",
            update_interval_s=REFRESH_S,
            accuracy=ACCURACY.get(model),
            resolution_w=0.001,
            note=f"{model} on the USB supply; add 4 digits of current at small loads",
        )

    def measure(self) -> float:
        """Return the power in watts.

        Raises:
            ProbeReadError: no whole record after three questions.
        """
        return self.read().power_w

    def read(self) -> UmRecord:
        """Ask for a record; torn ones are dropped and asked for again.

        Raises:
            ProbeReadError: no whole record after three questions.
        """
        for _ in range(TRIES):
            discard_input(self.port, quiet_s=0.0)
            self.port.write(ASK)
            if (record := self._receive()) is not None:
                return record
        raise ProbeReadError(f"{self.port.name}: no whole record from the meter in {TRIES} tries")

    def _receive(self) -> UmRecord | None:
        rest = b""
        deadline_s = time.monotonic() + REPLY_TIMEOUT_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            data = self.port.read(min(left_s, BREAK_S) if rest else left_s)
            if not data:
                return None
            record, rest = find_record(rest + data)
            if record is not None:
                return record
        return None


_: type[PowerProbe] = Um25cProbe
