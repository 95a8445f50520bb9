"""Nordic Power Profiler Kit II: 100 ksamples/s of current, which become joules with the supply voltage.

Commands: NordicSemiconductor/pc-nrfconnect-ppk 8da7626, ``src/device/serialDevice.ts``.
"""

from __future__ import annotations

import logging

import numpy as np

from ipj_edge.errors import ConfigError, ProbeError, ProbeReadError, ProbeUnavailableError
from ipj_edge.protocols import PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.serial.port import (
    SerialPort,
    UsbId,
    discard_input,
    open_port,
    port_availability,
    read_until,
)
from ipj_edge_probes.serial.ppk2.decode import (
    CODE_MASK,
    RATE_HZ,
    TOP_CODE,
    Modifiers,
    Ppk2Stream,
    current_table,
    decode_words,
    has_own_constants,
    parse_metadata,
)
from ipj_edge_probes.serial.sample_store import BlockMean
from ipj_edge_probes.serial.stream_sampler import CRYSTAL_DRIFT_LIMIT, SampleChunk, StreamSampler

logger = logging.getLogger(__name__)

# Two CDC ports a unit; the one whose USB location ends in 1 measures.
USB = UsbId(vendor=0x1915, location_end="1")
BAUD = 115200  # USB, so any rate will do

AVERAGE_START, AVERAGE_STOP = b"\x06", b"\x07"
POWER_ON = b"\x0c\x01"
AMPERE_METER, SOURCE_METER = b"\x11\x01", b"\x11\x02"
GET_METADATA = b"\x19"
REPLY_TIMEOUT_S = 2.0

MIN_SOURCE_V, MAX_SOURCE_V = 0.8, 5.0
DEFAULT_VDD_V = 3.0
SAMPLES_PER_MEAN = 100  # 1 kHz is what a window needs; energy is kept, memory is not spent


class Ppk2Probe:
    """Measure a rail with a Power Profiler Kit II.

    Options: ``port``; ``voltage_v`` (required: the unit streams current only); ``select``: ``ampere`` (default,
    the supply is the user's) or ``source`` (the unit supplies ``voltage_v``).
    """

    name = "ppk2"

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether the port is there; see `ipj_edge.protocols.PowerProbe`."""
        found = port_availability(self.name, options, USB)
        if found.available and options.voltage_v is None:
            return Availability(
                available=False,
                reason="a PPK2 streams current only, and no supply voltage was given",
                fix=f"--probe {self.name} --port {options.port} --voltage VOLTS",
            )
        return found

    def open(self, options: ProbeOptions) -> PowerSampler:
        """Open the unit, read its calibration and connect the device under test.

        Raises:
            ConfigError: a mode or voltage the unit does not have.
            ProbeUnavailableError: no port, no voltage, no PPK2 at the port, or a unit without calibration.
        """
        mode, voltage_v = _checked_mode(options)
        port = open_port(self.name, options, baud=BAUD, usb=USB)
        try:
            return StreamSampler(Ppk2Meter(port, voltage_v=voltage_v, mode=mode))
        except ProbeError:
            port.close()
            raise


def _checked_mode(options: ProbeOptions) -> tuple[str, float]:
    mode = options.select or "ampere"
    if mode not in ("ampere", "source"):
        raise ConfigError(f"'ppk2' has no mode '{mode}': select ampere (your own supply) or source (the unit's)")
    if options.voltage_v is None:
        raise ProbeUnavailableError(
            "'ppk2' streams current only: give the supply voltage of the device under test, --voltage VOLTS"
        )
    if not MIN_SOURCE_V <= options.voltage_v <= MAX_SOURCE_V:
        raise ConfigError(
            f"'ppk2' takes {MIN_SOURCE_V} V to {MAX_SOURCE_V} V, and the voltage given is {options.voltage_v:g} V"
        )
    return mode, options.voltage_v


class Ppk2Meter:
    """One PPK2 at a port; see `ipj_edge_probes.serial.stream_sampler.StreamingMeter`.

    Power of the device under test stays on afterwards: switching it off between windows would reboot the device.
    """

    pace_s = 0.005
    rate_hz = float(RATE_HZ)
    drift_limit: float | None = CRYSTAL_DRIFT_LIMIT
    rails: tuple[Rail, ...] = (Rail(name="supply", boundary="rails"),)

    def __init__(self, port: SerialPort, *, voltage_v: float, mode: str) -> None:
        self.port = port
        self._voltage_v = voltage_v
        self.modifiers = _read_modifiers(port)
        if not has_own_constants(self.modifiers):
            raise ProbeUnavailableError(
                f"the PPK2 at {port.name} has no calibration of its own: "
                "calibrate it with Nordic's Power Profiler application"
            )
        self._switch_on(mode)
        self.facts = _facts(mode, voltage_v)
        self._table = current_table(self.modifiers, self._vdd_v(mode)) * voltage_v
        self._state = Ppk2Stream()
        self._means = BlockMean(SAMPLES_PER_MEAN)
        self._samples = self._blocks = 0

    def begin(self) -> None:
        """Tell the unit to stream."""
        self.port.write(AVERAGE_START)

    def feed(self, data: bytes) -> SampleChunk:
        """Decode a chunk of the stream; lost samples are held over from the next one.

        Raises:
            ProbeReadError: the current is beyond the largest range.
        """
        chunk, self._state = decode_words(self._state, data)
        codes = chunk.words & CODE_MASK
        if (codes == TOP_CODE).any():
            raise ProbeReadError("'ppk2': the current is beyond the range of the meter (1 A); the window is not valid")
        lost = int(chunk.missing.sum())
        if lost:
            codes = np.repeat(codes, chunk.missing + 1)
        watts = self._means.feed(self._table[codes])
        first = self._blocks
        self._samples += len(codes)
        self._blocks += len(watts)
        return SampleChunk(
            device_s=(np.arange(first, self._blocks, dtype=np.float64) + 0.5) * (SAMPLES_PER_MEAN / RATE_HZ),
            watts=watts,
            expected=len(codes),
            lost=lost,
            newest_s=self._samples / RATE_HZ if len(codes) else None,
        )

    def end(self) -> None:
        """Tell the unit to stop."""
        self.port.write(AVERAGE_STOP)

    def _switch_on(self, mode: str) -> None:
        if mode == "source":
            millivolts = round(self._voltage_v * 1000)
            self.port.write(b"\x0d" + millivolts.to_bytes(2, "big"))
        self.port.write(SOURCE_METER if mode == "source" else AMPERE_METER)
        self.port.write(POWER_ON)

    def _vdd_v(self, mode: str) -> float:
        """Return the voltage of the formula's offset term: what the unit's own regulator is set to."""
        if mode == "source":
            return self._voltage_v
        return DEFAULT_VDD_V if self.modifiers.vdd_mv is None else self.modifiers.vdd_mv / 1000


def _facts(mode: str, voltage_v: float) -> ProbeFacts:
    source = "set by the unit" if mode == "source" else "as given, not measured"
    return ProbeFacts(
        name="ppk2",
        boundary="rails",
        provenance="measured",
        update_interval_s=SAMPLES_PER_MEAN / RATE_HZ,
        accuracy=0.15,
        note=f"current typically ±10 %, ±15 % in the largest range; supply {voltage_v:g} V, {source}",
    )


def _read_modifiers(port: SerialPort) -> Modifiers:
    """Stop what an earlier program may have started, and read the calibration.

    A second try covers a unit that was still sending samples when it was asked.
    """
    failure: ProbeReadError | None = None
    for _ in range(2):
        try:
            port.write(AVERAGE_STOP)
            discard_input(port)
            port.write(GET_METADATA)
            return parse_metadata(read_until(port, b"END", REPLY_TIMEOUT_S))
        except ProbeReadError as error:
            logger.debug("ppk2: %s", error)
            failure = error
    raise ProbeUnavailableError(
        f"no PPK2 answers at {port.name} ({failure}); it has two ports: try the other one"
    ) from failure


_: type[PowerProbe] = Ppk2Probe
