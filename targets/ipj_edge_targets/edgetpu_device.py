"""Whether there is an Edge TPU and the library that drives it."""

from __future__ import annotations

import ctypes
from pathlib import Path

LIBRARY = "libedgetpu.so.1"
# A USB Accelerator calls itself this until its firmware is loaded, and that afterwards.
_USB_IDS = frozenset({("1a6e", "089a"), ("18d1", "9302")})
FIX_LIBRARY = "install libedgetpu1-std (Debian packages of Coral, or a community build for newer systems)"
FIX_DEVICE = "plug in a USB Accelerator, or install the gasket driver for a PCIe or M.2 module"


def why_no_library() -> str:
    """Return why the driver's library cannot be loaded, or an empty string."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return f"{LIBRARY} is not installed"
    return ""


def why_no_device(root: Path = Path("/")) -> str:
    """Return why no Edge TPU can be found, or an empty string.

    Args:
        root: Where ``dev`` and ``sys`` are found.
    """
    if any(root.glob("dev/apex_[0-9]*")):
        return ""
    for folder in root.glob("sys/bus/usb/devices/*"):
        if (_read(folder / "idVendor"), _read(folder / "idProduct")) in _USB_IDS:
            return ""
    return "there is no Edge TPU: neither on USB (1a6e:089a, 18d1:9302) nor at /dev/apex_*"


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
