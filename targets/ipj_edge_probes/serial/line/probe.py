"""Home-made meters that print lines of values, such as an Arduino with an INA219."""

from __future__ import annotations

import time

import numpy as np

from ipj_edge.errors import ConfigError, ProbeError, ProbeReadError, ProbeUnavailableError
from ipj_edge.protocols import PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.serial.line.decode import (
    Array,
    Columns,
    is_header,
    parse_header,
    parse_rows,
    split_lines,
    unwrap,
    watts_of,
)
from ipj_edge_probes.serial.port import SerialPort, open_port, port_availability
from ipj_edge_probes.serial.stream_sampler import SampleChunk, StreamSampler

BAUD = 115200
# Opening the port resets an Arduino Uno; its boot loader waits up to two seconds.
HEADER_TIMEOUT_S = 8.0
LEARN_S = 2.0
LEARN_ROWS = 5
LEARN_TIMEOUT_S = 15.0
# Many boards run on a ceramic resonator.
RESONATOR_DRIFT_LIMIT = 0.02


class SerialLineProbe:
    """Measure with a meter that prints lines of values.

    Options: ``port`` (``/dev/ttyUSB0@115200``); ``select``: the header, for a meter that prints none (such as
    ``t_ms,bus_mV,current_mA``); ``voltage_v`` for a meter that sends current only.
    """

    name = "serial-line"

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether the port is there; see `ipj_edge.protocols.PowerProbe`."""
        return port_availability(self.name, options, None)

    def open(self, options: ProbeOptions) -> PowerSampler:
        """Open the meter, read its header and learn how often it prints.

        Raises:
            ConfigError: the columns hold no power, or no voltage and none was given.
            ProbeUnavailableError: no port, or no lines of values at the port.
        """
        columns = None if options.select is None else parse_header(options.select)
        port = open_port(self.name, options, baud=BAUD)
        try:
            return StreamSampler(LineMeter(port, columns=columns, voltage_v=options.voltage_v))
        except (ProbeError, ConfigError):
            port.close()
            raise


class LineMeter:
    """One meter at a port; see `ipj_edge_probes.serial.stream_sampler.StreamingMeter`.

    With a column of time that time counts; without one the lines are taken to be evenly spaced.
    """

    pace_s = 0.01
    rails: tuple[Rail, ...] = (Rail(name="supply", boundary="rails"),)

    def __init__(self, port: SerialPort, *, columns: Columns | None, voltage_v: float | None) -> None:
        self.port = port
        self._voltage_v = voltage_v
        self._rest = b""
        self._last_count: float | None = None
        self._rows = 0
        try:
            self._columns = columns or self._read_header()
            watts_of(np.empty((0, len(self._columns.names))), self._columns, voltage_v)
            self._period_s = self._learn_period()
        except ProbeReadError as error:
            raise ProbeUnavailableError(f"no meter that prints values at {port.name}: {error}") from error
        self.rate_hz = 1 / self._period_s
        self.drift_limit = None if self._columns.time is None else RESONATOR_DRIFT_LIMIT
        self.facts = self._facts()

    def begin(self) -> None:
        """Do nothing: the meter has been printing all the time."""

    def feed(self, data: bytes) -> SampleChunk:
        """Decode a chunk of the stream.

        Raises:
            ProbeReadError: the meter was reset.
        """
        lines, self._rest = split_lines(self._rest, data)
        rows, bad = parse_rows(lines, self._columns)
        before_s = self._last_s
        device_s = self._device_times(rows)
        lost = bad if self._columns.time is None else self._gaps(device_s, before_s)
        return SampleChunk(
            device_s=device_s,
            watts=watts_of(rows, self._columns, self._voltage_v),
            expected=len(rows) + lost,
            lost=lost,
            newest_s=float(device_s[-1]) if len(device_s) else None,
        )

    def end(self) -> None:
        """Do nothing: the meter knows no orders."""

    @property
    def _last_s(self) -> float | None:
        column = self._columns.time
        return None if column is None or self._last_count is None else self._last_count * column.unit

    def _device_times(self, rows: Array) -> Array:
        column = self._columns.time
        if column is None:
            first = self._rows
            self._rows += len(rows)
            return np.asarray(np.arange(first, self._rows) * self._period_s, np.float64)
        if not len(rows):
            return np.empty(0)
        counts = unwrap(rows[:, column.index], self._last_count)
        self._last_count = float(counts[-1])
        return counts * column.unit

    def _gaps(self, device_s: Array, before_s: float | None) -> int:
        """Return how many lines are missing, from steps of time longer than rounding explains."""
        steps = np.diff(device_s) if before_s is None else np.diff(device_s, prepend=before_s)
        rounding_s = 0.0 if self._columns.time is None else self._columns.time.unit
        return int(np.maximum(np.round((steps - rounding_s) / self._period_s) - 1, 0).sum())

    def _read_header(self) -> Columns:
        """Return the columns of the first header.

        Raises:
            ProbeReadError: none has come.
        """
        deadline_s = time.monotonic() + HEADER_TIMEOUT_S
        seen = ""
        while (left_s := deadline_s - time.monotonic()) > 0:
            lines, self._rest = split_lines(self._rest, self.port.read(left_s))
            for number, line in enumerate(lines):
                if is_header(line):
                    self._rest = "".join(f"{rest}\n" for rest in lines[number + 1 :]).encode() + self._rest
                    return parse_header(line)
                seen = line or seen
        raise ProbeReadError(
            f"no header in {HEADER_TIMEOUT_S:g} s (last line {seen!r}); reset the meter so that it prints one, "
            "or name the columns: --select t_ms,bus_mV,current_mA"
        )

    def _learn_period(self) -> float:
        """Return the seconds between two lines, from two seconds of them.

        Raises:
            ProbeReadError: too few lines, or lines that are not what the header says.
        """
        began_s = first_s = time.monotonic()
        self._skip_partial_line()
        spent: list[float] = []
        bad = 0
        while len(spent) < LEARN_ROWS or time.monotonic() - first_s < LEARN_S:
            if time.monotonic() - began_s > LEARN_TIMEOUT_S:
                raise ProbeReadError(
                    f"{len(spent)} lines of {len(self._columns.names)} values and {bad} others "
                    f"in {LEARN_TIMEOUT_S:g} s; are baud rate (--port PATH@BAUD) and columns right?"
                )
            lines, self._rest = split_lines(self._rest, self.port.read(0.1))
            rows, more_bad = parse_rows(lines, self._columns)
            bad += more_bad
            if not spent and len(rows):
                first_s = time.monotonic()
            times = self._device_times(rows) if self._columns.time else np.full(len(rows), time.monotonic())
            spent += times.tolist()
        return self._period(np.array(spent), bad)

    def _period(self, times_s: Array, bad: int) -> float:
        if self._columns.time is not None:
            period_s = (times_s[-1] - times_s[0]) / (len(times_s) - 1 + bad)
        else:
            # The first burst is left out: when its lines were printed is not known.
            period_s = (times_s[-1] - times_s[0]) / max(int((times_s > times_s[0]).sum()), 1)
        if period_s <= 0:
            raise ProbeReadError("the time column does not advance")
        return float(period_s)

    def _skip_partial_line(self) -> None:
        """Drop what is left of a line that began before the port was opened, unless the header came first."""
        if not self._rest and self._rows == 0 and self._last_count is None:
            deadline_s = time.monotonic() + HEADER_TIMEOUT_S
            received = b""
            while b"\n" not in received and time.monotonic() < deadline_s:
                received += self.port.read(0.1)
            self._rest = received.partition(b"\n")[2]

    def _facts(self) -> ProbeFacts:
        spacing = (
            "times as the meter gives them"
            if self._columns.time is not None
            else "no column of time: lines taken to be evenly spaced"
        )
        return ProbeFacts(
            name="serial-line",
            boundary="rails",
            provenance="measured",
            update_interval_s=self._period_s,
            accuracy=None,
            note=f"columns {','.join(self._columns.names)}; {spacing}; accuracy is the sensor's, not known here",
        )


_: type[PowerProbe] = SerialLineProbe
