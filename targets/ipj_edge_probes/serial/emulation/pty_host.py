"""Puts an emulated instrument on a pseudo terminal, where any serial driver can open it."""

from __future__ import annotations

import errno
import os
import select
import sys
import threading
import time
import tty
from typing import Protocol

POLL_S = 0.002
# A real instrument loses samples when nobody reads; so does this one, when more than this waits.
MAX_PENDING_BYTES = 4 << 20


class UnplugError(Exception):
    """An instrument raises this to be unplugged."""


class Instrument(Protocol):
    """An emulated instrument: bytes in, bytes out. It reads no clock, so it runs in tests without one."""

    def receive(self, data: bytes, now_s: float) -> bytes:
        """Take bytes from the host and return the reply, perhaps empty."""

    def produce(self, now_s: float) -> bytes:
        """Return what the instrument sends unasked up to now.

        Raises:
            UnplugError: the cable is pulled.
        """


class PtyHost:
    """Runs an instrument on a pty in a thread; a context manager.

    Attributes:
        port: Path to open with a serial driver.
    """

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._master, slave = os.openpty()
        tty.setraw(slave)
        self.port = os.ttyname(slave)
        os.close(slave)
        os.set_blocking(self._master, False)
        self._poll = select.poll()
        self._pending = bytearray()
        self._stopping = threading.Event()
        self._plugged = True
        self._thread = threading.Thread(target=self._run, name="pty-instrument", daemon=True)

    def __enter__(self) -> PtyHost:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._unplug()

    def unplug(self) -> None:
        """Pull the cable: the client's next read fails."""
        self._stopping.set()
        self._thread.join()
        self._unplug()

    def wait(self) -> None:
        """Run until the instrument unplugs itself."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except UnplugError:
            self._unplug()

    def _step(self) -> None:
        self._poll.register(self._master, select.POLLIN | (select.POLLOUT if self._pending else 0))
        events = dict(self._poll.poll(POLL_S * 1000)).get(self._master, 0)
        if events & select.POLLHUP and not events & select.POLLIN:
            # Nobody has opened the port; the instrument is switched on when somebody does.
            self._pending.clear()
            self._stopping.wait(POLL_S)
            return
        now_s = time.monotonic()
        if events & select.POLLIN:
            self._pending += self._instrument.receive(os.read(self._master, 4096), now_s)
        produced = self._instrument.produce(now_s)
        if len(self._pending) < MAX_PENDING_BYTES:
            self._pending += produced
        if self._pending:
            self._send()

    def _send(self) -> None:
        try:
            sent = os.write(self._master, self._pending[:65536])
        except OSError as error:
            # Full, or closed by the client just now.
            if error.errno not in (errno.EAGAIN, errno.EIO):
                raise
            return
        del self._pending[:sent]

    def _unplug(self) -> None:
        if self._plugged:
            self._plugged = False
            os.close(self._master)


def serve(instrument: Instrument) -> int:
    """Run an instrument in the foreground and print its port; ends with Ctrl-C or when it unplugs itself."""
    with PtyHost(instrument) as host:
        sys.stdout.write(f"{host.port}\n")
        sys.stdout.flush()
        try:
            host.wait()
        except KeyboardInterrupt:
            return 130
    return 0
