"""The NVIDIA driver behind ``pynvml``: what a power probe asks it, in SI units, and why it may refuse."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from ipj_edge_probes.libraries.nvml_devices import GpuDevice
from ipj_edge_probes.refusal import RefusalError, UnreadableError, refusing

# Return codes of nvml.h.
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 3, 4, 9, 12
FUNCTION_NOT_FOUND, GPU_IS_LOST, VERSION_MISMATCH = 13, 15, 18

_REMEDIES = {
    LIBRARY_NOT_FOUND: (
        "the NVIDIA driver's library libnvidia-ml.so.1 is not here",
        "install the NVIDIA driver; start a container with --gpus all and the capability 'utility'",
    ),
    DRIVER_NOT_LOADED: ("the NVIDIA kernel driver is not loaded", "sudo modprobe nvidia, and look into dmesg"),
    NO_PERMISSION: (
        "this user may not ask the NVIDIA driver",
        "run as root or as a user who may open /dev/nvidia*",
    ),
    VERSION_MISMATCH: (
        "the NVIDIA library is of another version than the loaded kernel driver (it was upgraded)",
        "reboot, or unload and load the kernel module",
    ),
    GPU_IS_LOST: ("a GPU has fallen off the bus", "reboot the machine"),
}


class UnsupportedCallError(UnreadableError):
    """The driver or the GPU has no such figure."""


class Driver:
    """The NVIDIA driver, initialised; a context manager."""

    def __init__(self, library: Any) -> None:
        self._nvml = library
        self._open = False
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            failure = self._failure("the NVIDIA driver", error)
            raise RefusalError("nvml", failure.reason, failure.fix) from error
        self._open = True

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the driver. Calling twice is allowed."""
        if self._open:
            self._open = False
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError as error:
                raise self._failure("the NVIDIA driver", error) from error

    def devices(self) -> tuple[GpuDevice, ...]:
        """Return every GPU.

        Raises:
            ProbeUnavailableError: the driver does not list them.
        """
        with refusing("nvml"):
            count = self._ask("the NVIDIA driver", self._nvml.nvmlDeviceGetCount)
            return tuple(self._device(index) for index in range(count))

    def joules(self, device: GpuDevice) -> float:
        """Return the energy since the driver was loaded, in joules.

        Raises:
            UnreadableError: there is no such counter (before Volta), or the GPU does not answer.
        """
        handle = self._handle(device.index)
        return float(self._ask(device.uuid, self._nvml.nvmlDeviceGetTotalEnergyConsumption, handle)) * 1e-3

    def watts(self, device: GpuDevice) -> float:
        """Return the power in watts.

        Raises:
            UnreadableError: the GPU gives no power, or does not answer.
        """
        return float(self._ask(device.uuid, self._nvml.nvmlDeviceGetPowerUsage, self._handle(device.index))) * 1e-3

    def counts_energy(self, device: GpuDevice) -> bool:
        """Say whether a GPU has an energy counter.

        Raises:
            UnreadableError: it cannot be asked.
        """
        try:
            self.joules(device)
        except UnsupportedCallError:
            return False
        return True

    def _device(self, index: int) -> GpuDevice:
        handle = self._handle(index)
        uuid = _text(self._ask(f"GPU {index}", self._nvml.nvmlDeviceGetUUID, handle))
        mode = self._if_known("nvmlDeviceGetMigMode", handle)
        pci = self._if_known("nvmlDeviceGetPciInfo", handle)
        return GpuDevice(
            index=index,
            uuid=uuid,
            name=_text(self._if_known("nvmlDeviceGetName", handle) or ""),
            bus_id=_text(pci.busId) if pci is not None else "",
            slices=self._slices(handle),
            is_split=bool(mode and mode[0]),
            architecture=self._if_known("nvmlDeviceGetArchitecture", handle),
        )

    def _slices(self, handle: Any) -> tuple[str, ...]:
        found = []
        for index in range(self._if_known("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            part = self._if_known("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            if part is not None:
                found.append(_text(self._ask(f"MIG slice {index}", self._nvml.nvmlDeviceGetUUID, part)))
        return tuple(found)

    def _handle(self, index: int) -> Any:
        return self._ask(f"GPU {index}", self._nvml.nvmlDeviceGetHandleByIndex, index)

    def _ask(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            raise self._failure(what, error) from error

    def _if_known(self, call: str, *arguments: Any) -> Any:
        """Ask for something that older drivers do not know, and that only makes a figure clearer."""
        try:
            return getattr(self._nvml, call)(*arguments)
        except self._nvml.NVMLError:
            return None

    def _failure(self, what: str, error: Any) -> UnreadableError:
        if error.value in _REMEDIES:
            return UnreadableError(*_REMEDIES[error.value])
        if error.value in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            return UnsupportedCallError(f"{what} does not support this ({error})")
        return UnreadableError(f"{what} cannot be read ({error})")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
