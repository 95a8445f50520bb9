"""Whether NVIDIA's driver sees a GPU, asked of the driver itself (CUDA driver API)."""

from __future__ import annotations

import ctypes

_LIBRARY = "libcuda.so.1"


def why_no_gpu() -> str:
    """Return why there is no GPU to compute on; empty where there is one."""
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        return f"no NVIDIA driver ({_LIBRARY} is not found)"
    code = driver.cuInit(0)
    if code != 0:
        return f"NVIDIA's driver finds no GPU to use (cuInit: error {code})"
    count = ctypes.c_int(0)
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value == 0:
        return "NVIDIA's driver sees no GPU (CUDA_VISIBLE_DEVICES hides them, or a container was given none)"
    return ""
