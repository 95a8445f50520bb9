"""Which GPUs a process sees: ``CUDA_VISIBLE_DEVICES`` mapped to UUIDs, for NVML and CUDA number GPUs differently.

Rules: CUDA C++ Programming Guide, "CUDA Environment Variables".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ipj_edge_probes.refusal import RefusalError

PCI_BUS_ID = "PCI_BUS_ID"


class GpuDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as NVML lists it.

    Attributes:
        index: NVML's number for it, in the order of PCI addresses.
        uuid: ``GPU-…``, the same in every order.
        name: Product name; empty when the driver does not give it.
        bus_id: PCI address; empty when the driver does not give it.
        slices: UUIDs of its MIG slices.
        is_split: Whether it is in MIG mode.
        architecture: NVML's number of its architecture; None when the driver does not give it.
    """

    index: int
    uuid: str
    name: str = ""
    bus_id: str = ""
    slices: tuple[str, ...] = ()
    is_split: bool = False
    architecture: int | None = None


def visible_uuids(value: str | None, devices: Sequence[GpuDevice], order: str | None = None) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that CUDA shows a process, in CUDA's order.

    As in CUDA, the list ends at the first entry that names no GPU, an empty list hides all, and a prefix of a
    UUID will do when only one GPU has it. A MIG slice stands for the GPU it is part of.

    Args:
        value: ``CUDA_VISIBLE_DEVICES``; None when it is not set, which shows all.
        devices: The GPUs, in NVML's order.
        order: ``CUDA_DEVICE_ORDER``; None when it is not set, which is FASTEST_FIRST.

    Raises:
        ProbeUnavailableError: an index cannot be mapped, for CUDA's order by speed is known to CUDA only.
    """
    if value is None:
        return tuple(device.uuid for device in devices)
    found: dict[str, None] = {}
    indices: set[int] = set()
    for word in (part.strip() for part in value.split(",")):
        device = _named(word, devices)
        if device is None:
            break
        found[device.uuid] = None
        if word.isdecimal():
            indices.add(device.index)
    if indices and len(found) < len(devices):
        _check_order(devices, order, value)
    return tuple(found)


def selected(wanted: str, devices: Sequence[GpuDevice]) -> tuple[GpuDevice, ...]:
    """Return the GPUs a user selected, with commas between: UUIDs, prefixes, PCI addresses or NVML indices.

    Raises:
        ProbeUnavailableError: one of them is not here; lists those that are.
    """
    found: dict[int, GpuDevice] = {}
    for word in (part.strip() for part in wanted.split(",")):
        by_bus = [device for device in devices if word and device.bus_id.lower().endswith(word.lower())]
        device = _named(word, devices) or (by_bus[0] if len(by_bus) == 1 and ":" in word else None)
        if device is None:
            here = ", ".join(f"{device.index} = {device.uuid} {device.name}".strip() for device in devices)
            raise RefusalError("nvml", f"no GPU '{word}' here", f"select one of: {here}")
        found[device.index] = device
    return tuple(found.values())


def _named(word: str, devices: Sequence[GpuDevice]) -> GpuDevice | None:
    if word.isdecimal():
        return devices[int(word)] if int(word) < len(devices) else None
    if word.startswith("MIG-"):
        return _holder(word, devices)
    matches = [device for device in devices if word.startswith("GPU-") and device.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None


def _holder(word: str, devices: Sequence[GpuDevice]) -> GpuDevice | None:
    """Return the GPU a MIG slice is part of; drivers before R470 wrote it as MIG-GPU-uuid/instance/instance."""
    for device in devices:
        if word.startswith(f"MIG-{device.uuid}/") or word in device.slices:
            return device
    matches = [device for device in devices if any(slice_.startswith(word) for slice_ in device.slices)]
    return matches[0] if len(matches) == 1 else None


def _check_order(devices: Sequence[GpuDevice], order: str | None, value: str) -> None:
    if order == PCI_BUS_ID or len({device.name for device in devices}) == 1:
        return  # GPUs of one model are equally fast, and CUDA then keeps the order of their PCI addresses.
    raise RefusalError(
        "nvml",
        f"CUDA_VISIBLE_DEVICES={value} counts GPUs of different models by speed, an order that only CUDA knows",
        "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPU by its UUID (nvidia-smi -L)",
    )
