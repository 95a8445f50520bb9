"""Whether there is an Edge TPU and the library that drives it, asked of that library.

Interface: ``edgetpu_c.h`` of libedgetpu.
"""

from __future__ import annotations

import ctypes

LIBRARY = "libedgetpu.so.1"
FIX_LIBRARY = "install libedgetpu1-std (Debian packages of Coral, or a community build for newer systems)"
FIX_DEVICE = (
    "plug in a USB Accelerator and join the group plugdev, or install the gasket driver for a PCIe or M.2 module "
    "(/dev/apex_0)"
)


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("path", ctypes.c_char_p))


def find_devices() -> tuple[str, ...]:
    """Return the paths of the Edge TPUs that libedgetpu finds.

    Raises:
        OSError: the library is not installed.
    """
    library = ctypes.CDLL(LIBRARY)
    library.edgetpu_list_devices.restype = ctypes.POINTER(_Device)
    library.edgetpu_list_devices.argtypes = (ctypes.POINTER(ctypes.c_size_t),)
    library.edgetpu_free_devices.restype = None
    library.edgetpu_free_devices.argtypes = (ctypes.POINTER(_Device),)
    count = ctypes.c_size_t(0)
    devices = library.edgetpu_list_devices(ctypes.byref(count))
    try:
        return tuple((devices[number].path or b"").decode() for number in range(count.value))
    finally:
        if devices:
            library.edgetpu_free_devices(devices)


def why_not_here() -> tuple[str, str]:
    """Return why the Edge TPU cannot be used here and how to change that; two empty strings when it can."""
    try:
        devices = find_devices()
    except OSError:
        return f"{LIBRARY} is not installed", FIX_LIBRARY
    except AttributeError:
        return f"{LIBRARY} is not what it is called: it lists no devices", FIX_LIBRARY
    return ("", "") if devices else (f"{LIBRARY} finds no Edge TPU", FIX_DEVICE)
