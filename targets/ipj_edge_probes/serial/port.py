"""How bytes travel to a serial meter. What they mean is the drivers' business: they are given a port.

A port is named ``PATH``, ``PATH@BAUD`` or any URL pyserial knows (``socket://host:5025`` reaches an instrument on
the network).
"""

from __future__ import annotations

import errno
import os
import select
import time
from typing import Any, Protocol

import msgspec

from ipj_edge.errors import MissingDependencyError, ProbeReadError, ProbeUnavailableError
from ipj_edge.plugins import needs
from ipj_edge.values import Availability, ProbeOptions

READ_BYTES = 1 << 16
FULL_CHUNK_BYTES = 2048
WRITE_TIMEOUT_S = 2.0


class SerialPort(Protocol):
    """A byte stream to and from a meter.

    Attributes:
        name: Path or URL, for messages.
    """

    name: str

    def write(self, data: bytes) -> None:
        """Send all of data.

        Raises:
            ProbeReadError: the meter is gone, or takes no more bytes.
        """

    def read(self, timeout_s: float) -> bytes:
        """Return the bytes that are there; when there are none, those that come first within the timeout.

        Raises:
            ProbeReadError: the meter is gone.
        """

    def close(self) -> None:
        """Release the port. Calling twice is allowed."""


class UsbId(msgspec.Struct, frozen=True, kw_only=True):
    """How a meter shows on USB.

    Attributes:
        vendor: USB vendor id.
        product: USB product id, or None when the vendor id is enough.
        location_end: End of the USB location of the port that measures, where a meter has several ports.
    """

    vendor: int
    product: int | None = None
    location_end: str = ""


class PortListing(msgspec.Struct, frozen=True, kw_only=True):
    """One serial port of this machine, as pyserial lists it."""

    path: str
    description: str = ""
    vendor: int | None = None
    product: int | None = None
    location: str = ""


def list_ports(extra: str) -> tuple[PortListing, ...]:
    """List the serial ports of this machine.

    Raises:
        MissingDependencyError: pyserial is not installed.
    """
    with needs(extra):
        from serial.tools.list_ports import comports
    return tuple(
        PortListing(
            path=port.device,
            description=port.description or "",
            vendor=port.vid,
            product=port.pid,
            location=port.location or "",
        )
        for port in comports()
    )


def candidates(ports: tuple[PortListing, ...], usb: UsbId | None) -> tuple[PortListing, ...]:
    """Pick the ports a meter may hang on: those with its USB id, the measuring one alone where it can be told.

    Args:
        ports: All ports of the machine.
        usb: The meter's USB id; None for meters that have none of their own, which may be any port.
    """
    if usb is None:
        return ports
    own = [p for p in ports if p.vendor == usb.vendor and usb.product in (None, p.product)]
    measuring = [p for p in own if usb.location_end and p.location.endswith(usb.location_end)]
    return tuple(measuring or own)


def port_remedy(probe: str, ports: tuple[PortListing, ...], usb: UsbId | None) -> str:
    """Say which option gives the probe its port, from the ports that are there."""
    found = candidates(ports, usb)
    if found:
        shown = ", ".join(f"{p.path} ({p.description})" if p.description else p.path for p in found)
        return f"--probe {probe} --port {found[0].path}   (candidates: {shown})"
    if usb is None:
        return f"--probe {probe} --port PATH (no serial port was found on this machine)"
    identity = f"{usb.vendor:04x}:{usb.product:04x}" if usb.product is not None else f"{usb.vendor:04x}"
    return f"connect the meter, then --probe {probe} --port PATH (no serial port with USB id {identity} was found)"


def port_availability(probe: str, options: ProbeOptions, usb: UsbId | None) -> Availability:
    """Say whether the port of a serial meter can be opened, without opening it: opening resets some meters."""
    try:
        ports = list_ports(probe)
    except MissingDependencyError as error:
        return Availability(available=False, reason=str(error), fix=f"pip install 'ipj-edge[{probe}]'")
    if options.port is None:
        return Availability(available=False, reason="no serial port was given", fix=port_remedy(probe, ports, usb))
    path, _ = split_port(options.port, 0)
    if "://" in path:
        return Availability(available=True, reason=f"{path}, not tried until opened")
    if not os.path.exists(path):
        return Availability(available=False, reason=f"{path} does not exist", fix=port_remedy(probe, ports, usb))
    if not os.access(path, os.R_OK | os.W_OK):
        return Availability(available=False, reason=f"permission denied on {path}", fix=_permission_remedy(path))
    return Availability(available=True, reason=path)


def split_port(text: str, default_baud: int) -> tuple[str, int]:
    """Split ``PATH@BAUD`` into path and baud rate."""
    path, at, baud = text.rpartition("@")
    return (path, int(baud)) if at and baud.isdigit() else (text, default_baud)


def open_port(probe: str, options: ProbeOptions, *, baud: int, usb: UsbId | None = None) -> SerialPort:
    """Open the serial port the user named.

    The port is locked, so that a second program cannot steal bytes. DTR goes high, as pyserial does by default:
    USB meters send nothing without it. (It also resets an Arduino Uno, which then begins with its header.)

    Args:
        probe: Name of the probe, which is also the extra that brings pyserial.
        options: ``port`` is required.
        baud: Baud rate unless the port's name says another.
        usb: USB id, for the hint when no port was given.

    Raises:
        MissingDependencyError: pyserial is not installed.
        ProbeUnavailableError: no port was given, or it cannot be opened.
    """
    with needs(probe):
        import serial
    if options.port is None:
        raise ProbeUnavailableError(
            f"'{probe}' needs the serial port of the meter: {port_remedy(probe, list_ports(probe), usb)}"
        )
    path, rate = split_port(options.port, baud)
    try:
        handle = serial.serial_for_url(path, do_not_open=True)
        handle.baudrate = rate
        handle.timeout = 0
        handle.write_timeout = WRITE_TIMEOUT_S
        if "://" not in path:
            handle.exclusive = True
        handle.open()
    except (OSError, ValueError) as error:
        raise ProbeUnavailableError(_open_failure(probe, path, error, usb)) from error
    return PyserialPort(handle, path)


def _open_failure(probe: str, path: str, error: Exception, usb: UsbId | None) -> str:
    code = getattr(error, "errno", None)
    if code == errno.EACCES:
        return f"'{probe}': permission denied on {path}: {_permission_remedy(path)}"
    if code in (errno.EAGAIN, errno.EBUSY) or "exclusively lock" in str(error):
        return f"'{probe}': {path} is in use by another program; close it and try again"
    if code == errno.ENOENT:
        return f"'{probe}': {path} does not exist: {port_remedy(probe, list_ports(probe), usb)}"
    return f"'{probe}': cannot open {path}: {error}"


def _permission_remedy(path: str) -> str:
    return f"sudo usermod -aG dialout $USER, then log in again (or once: sudo chmod a+rw {path})"


class PyserialPort:
    """A port opened by pyserial. Reads never block longer than asked."""

    def __init__(self, handle: Any, name: str) -> None:
        self.name = name
        self._handle = handle

    def write(self, data: bytes) -> None:
        """Send all of data; see `SerialPort`."""
        try:
            self._handle.write(data)
        except OSError as error:
            raise ProbeReadError(f"{self.name}: cannot send to the meter ({error}); was it unplugged?") from error

    def read(self, timeout_s: float) -> bytes:
        """Return waiting bytes, or the first to come; see `SerialPort`."""
        try:
            # pyserial's own timeout would be set by an ioctl at every change: wait here, read without blocking.
            if timeout_s > 0 and not select.select([self._handle.fileno()], [], [], timeout_s)[0]:
                return b""
            received = chunk = bytes(self._handle.read(READ_BYTES))
            # The kernel hands out at most a page at a time: a full one means there is more.
            while len(chunk) >= FULL_CHUNK_BYTES and len(received) < READ_BYTES:
                chunk = bytes(self._handle.read(READ_BYTES))
                received += chunk
            return received
        except (OSError, ValueError, TypeError) as error:
            # pyserial answers a port closed under it with ValueError or TypeError, by its version.
            raise ProbeReadError(f"{self.name}: the meter is gone ({error}); was it unplugged?") from error

    def close(self) -> None:
        """Release the port."""
        self._handle.close()


def read_until(port: SerialPort, end: bytes, timeout_s: float) -> bytes:
    """Read until a mark has come and return all that was read, the mark last or followed by what came with it.

    Raises:
        ProbeReadError: the mark has not come in time, or the meter is gone.
    """
    received = bytearray()
    deadline_s = time.monotonic() + timeout_s
    while end not in received:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            shown = bytes(received[-60:])
            raise ProbeReadError(f"{port.name}: no {end!r} from the meter in {timeout_s:g} s; received {shown!r}")
        received += port.read(left_s)
    return bytes(received)


def discard_input(port: SerialPort, *, quiet_s: float = 0.1, limit_s: float = 2.0) -> int:
    """Throw away what a meter still sends from before, until it has been quiet; return how many bytes that were.

    Raises:
        ProbeReadError: the meter does not stop sending.
    """
    discarded = 0
    deadline_s = time.monotonic() + limit_s
    while data := port.read(quiet_s):
        discarded += len(data)
        if time.monotonic() > deadline_s:
            raise ProbeReadError(f"{port.name}: the meter still sends {limit_s:g} s after it was told to stop")
    return discarded
