"""ST X-NUCLEO-LPM01A (PowerShield): the meter of MLPerf Tiny.

Commands: ST UM2269 Rev 6; the sequence is the one mlcommons/tiny uses.
"""

from __future__ import annotations

import time

import numpy as np

from ipj_edge.errors import ConfigError, ProbeError, ProbeReadError, ProbeUnavailableError
from ipj_edge.protocols import PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.serial.lpm01a.account import StampAccount
from ipj_edge_probes.serial.lpm01a.decode import Lpm01aStream, decode_ascii, decode_binary
from ipj_edge_probes.serial.port import SerialPort, UsbId, discard_input, open_port, port_availability
from ipj_edge_probes.serial.sample_store import BlockMean
from ipj_edge_probes.serial.stream_sampler import CRYSTAL_DRIFT_LIMIT, SampleChunk, StreamSampler

USB = UsbId(vendor=0x0483, product=0x5740)
BAUD = 3_686_400
REPLY_TIMEOUT_S = 2.0
MIN_SUPPLY_V, MAX_SUPPLY_V = 1.8, 3.3
MEAN_RATE_HZ = 1000
# A time stamp each 20 ms: samples are held back until theirs has come.
BINARY_RATE_HZ = 50_000.0


class Lpm01aProbe:
    """Measure a rail with an X-NUCLEO-LPM01A, which also supplies it.

    Options: ``port``; ``voltage_v`` sets the supply, 1.8 V to 3.3 V (without it the meter's own setting stays);
    ``select``: ``energy`` (default: joules per millisecond, added up by the meter) or ``current`` (binary stream
    of 50 ksamples/s; needs ``voltage_v``).
    """

    name = "lpm01a"

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether the port is there; see `ipj_edge.protocols.PowerProbe`."""
        return port_availability(self.name, options, USB)

    def open(self, options: ProbeOptions) -> PowerSampler:
        """Open the meter, take control of it and power the device under test.

        Raises:
            ConfigError: an output or voltage the meter does not have.
            ProbeUnavailableError: no port, no meter at the port, or the meter refuses a setting.
        """
        output = _checked_output(options)
        port = open_port(self.name, options, baud=BAUD, usb=USB)
        try:
            return StreamSampler(Lpm01aMeter(port, output=output, voltage_v=options.voltage_v))
        except ProbeError:
            port.close()
            raise


def _checked_output(options: ProbeOptions) -> str:
    output = options.select or "energy"
    if output not in ("energy", "current"):
        raise ConfigError(f"'lpm01a' has no output '{output}': select energy or current")
    if options.voltage_v is None:
        if output == "current":
            raise ProbeUnavailableError("'lpm01a' streams no voltage: its output 'current' needs --voltage VOLTS")
    elif not MIN_SUPPLY_V <= options.voltage_v <= MAX_SUPPLY_V:
        raise ConfigError(
            f"'lpm01a' supplies {MIN_SUPPLY_V} V to {MAX_SUPPLY_V} V, and {options.voltage_v:g} V was asked for"
        )
    return output


class Lpm01aMeter:
    """One X-NUCLEO-LPM01A at a port; see `ipj_edge_probes.serial.stream_sampler.StreamingMeter`.

    Power of the device under test stays on afterwards: switching it off between windows would reboot the device.
    """

    pace_s = 0.01
    drift_limit: float | None = CRYSTAL_DRIFT_LIMIT
    rails: tuple[Rail, ...] = (Rail(name="supply", boundary="rails"),)

    def __init__(self, port: SerialPort, *, output: str, voltage_v: float | None) -> None:
        binary = output == "current"
        self.port = port
        self.rate_hz = BINARY_RATE_HZ if binary else 1000.0
        self._decode = decode_binary if binary else decode_ascii
        # A binary stream is trusted from its first time stamp on.
        self._state = Lpm01aStream(aligned=not binary)
        self._account = StampAccount(self.rate_hz, hold=binary)
        self._per_mean = round(self.rate_hz) // MEAN_RATE_HZ
        self._means = BlockMean(self._per_mean)
        self._watts_per_value = (voltage_v or 0.0) if binary else self.rate_hz
        self._samples = self._blocks = 0
        self._early = b""
        self._configure(output, voltage_v)
        self.facts = _facts(output, voltage_v)

    def begin(self) -> None:
        """Tell the meter to acquire."""
        self._early = command(self.port, "start")

    def feed(self, data: bytes) -> SampleChunk:
        """Decode a chunk of the stream.

        Raises:
            ProbeReadError: the meter failed or stopped, or its time stamps cannot be right.
        """
        early, self._early = self._early, b""
        chunk, self._state = self._decode(self._state, early + data)
        accounted = self._account.feed(chunk)
        watts = self._means.feed(accounted.values * self._watts_per_value)
        first = self._blocks
        self._blocks += len(watts)
        self._samples += len(accounted.values)
        received = self._samples + self._account.held
        return SampleChunk(
            device_s=(np.arange(first, self._blocks) + 0.5) / MEAN_RATE_HZ,
            watts=watts,
            expected=len(accounted.values),
            lost=accounted.lost,
            newest_s=received / self.rate_hz if self._samples else None,
        )

    def end(self) -> None:
        """Tell the meter to stop and give its display back."""
        self.port.write(b"stop\n")
        discard_input(self.port)
        command(self.port, "hrc")

    def _configure(self, output: str, voltage_v: float | None) -> None:
        try:
            self.port.write(b"stop\n")  # an earlier program may have left it acquiring
            discard_input(self.port)
            command(self.port, "htc")
        except ProbeReadError as error:
            raise ProbeUnavailableError(f"no X-NUCLEO-LPM01A answers at {self.port.name} ({error})") from error
        settings = [
            "acqtime inf",
            "trigdelay 0",
            "trigsrc sw",
            f"output {output}",
            f"format {'bin_hexa' if output == 'current' else 'ascii_dec'}",
            f"freq {round(self.rate_hz) // 1000}k",
        ]
        if voltage_v is not None:
            settings.append(f"volt {round(voltage_v * 1000)}m")
        for setting in [*settings, "pwr on nostatus"]:
            command(self.port, setting)


def command(port: SerialPort, text: str) -> bytes:
    """Send a command and wait until the meter has taken it; return the bytes that came after the acknowledgement.

    Raises:
        ProbeReadError: no answer.
        ProbeUnavailableError: the meter refuses the command.
    """
    port.write(text.encode() + b"\n")
    received = bytearray()
    deadline_s = time.monotonic() + REPLY_TIMEOUT_S
    while (left_s := deadline_s - time.monotonic()) > 0:
        received += port.read(left_s)
        taken = received.find(b"ack " + text.encode())
        if taken >= 0 and (line_end := received.find(b"\n", taken)) >= 0:
            return bytes(received[line_end + 1 :])
        if (detail := _refusal(bytes(received))) is not None:
            raise ProbeUnavailableError(f"the LPM01A at {port.name} refuses '{text}': {detail or 'no reason given'}")
    raise ProbeReadError(
        f"{port.name}: no answer to '{text}' in {REPLY_TIMEOUT_S:g} s; received {bytes(received[-60:])!r}"
    )


def _refusal(received: bytes) -> str | None:
    """Return why a command was refused, once all is there; the manual says ``err``, the firmware ``error``."""
    at = received.find(b"err")
    detail = received.find(b"Error detail:", max(at, 0))
    if at < 0 or detail < 0 or (end := received.find(b"\n", detail)) < 0:
        return None
    return received[detail + len(b"Error detail:") : end].decode("ascii", "replace").strip()


def _facts(output: str, voltage_v: float | None) -> ProbeFacts:
    supply = "the meter's own setting" if voltage_v is None else f"{voltage_v:g} V"
    what = "joules added up by the meter" if output == "energy" else "current times the voltage that was set (±1 %)"
    return ProbeFacts(
        name="lpm01a",
        boundary="rails",
        provenance="measured",
        update_interval_s=1 / MEAN_RATE_HZ,
        accuracy=0.02 if output == "energy" else 0.03,
        note=f"{what}; supply {supply}; calibrate again after 5 °C of drift",
    )


_: type[PowerProbe] = Lpm01aProbe
