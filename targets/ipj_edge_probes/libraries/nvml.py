"""Power probe ``nvml``: NVIDIA GPUs, by the driver's energy counter, or by power where there is none."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from ipj_edge.energy.polling import PolledSampler
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array, EnergyCounter, PowerProbe, PowerSampler
from ipj_edge.values import Availability, ProbeFacts, ProbeOptions, Rail
from ipj_edge_probes.libraries.nvml_devices import GpuDevice, selected, visible_uuids
from ipj_edge_probes.libraries.nvml_driver import Driver
from ipj_edge_probes.refusal import RefusalError, availability_of, refusing
from ipj_edge_probes.rising import RisingCounts

# NVIDIA documents ±5 % for older boards and nothing newer.
_ACCURACY = 0.05
_UPDATE_S = 0.1
_AVERAGE_S = 1.0
_QUANTUM_J = 1e-3
_POLL_S = 0.1
_AMPERE = 7

# Boards with a GA100 or GH100 chip.
_GA100 = re.compile(r"\bA(100|800|30)\b")
_GH100 = re.compile(r"\b(H100|H200|H800|H20|GH200)\b")
_SUPERCHIP = re.compile(r"\b(GH200|GB200|GB300|GB10)\b")


class NvmlProbe:
    """Measures GPUs: those ``select`` names, else those CUDA shows this process, else all.

    Args:
        library: Stands in for the module ``pynvml``; None imports it.
    """

    name = "nvml"

    def __init__(self, library: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._library, self._clock = library, clock

    def availability(self, options: ProbeOptions) -> Availability:
        """Say which GPUs would be measured and by what, or why none can be."""
        return availability_of(lambda: self._describe(options))

    def open(self, options: ProbeOptions) -> EnergyCounter | PowerSampler:
        """Open the GPUs.

        Raises:
            MissingDependencyError: nvidia-ml-py is not installed.
            ProbeUnavailableError: no driver, no permission, no such GPU, or a GPU without a power figure.
        """
        driver = self._driver()
        try:
            devices = choose(driver.devices(), options)
            if _has_counters(driver, devices):
                return NvmlCounter(driver, devices, self._clock)
            with refusing(self.name):
                read = GpuPowerReader(driver, devices)
                read()
        except BaseException:
            driver.close()
            raise
        return NvmlSampler(driver, devices, read, self._clock)

    def _driver(self) -> Driver:
        with needs("nvml"):
            if self._library is None:
                import pynvml

                self._library = pynvml
        return Driver(self._library)

    def _describe(self, options: ProbeOptions) -> str:
        with self._driver() as driver:
            devices = choose(driver.devices(), options)
            how = "energy counter" if _has_counters(driver, devices) else "power"
            with refusing(self.name):
                for device in devices:
                    (driver.joules if how == "energy counter" else driver.watts)(device)
            return f"{how} of " + ", ".join(f"{device.name or 'GPU'} ({device.uuid})" for device in devices)


class NvmlCounter:
    """The driver's energy counters, in joules since they were opened; they hold 64 bits of mJ and do not wrap."""

    def __init__(self, driver: Driver, devices: Sequence[GpuDevice], clock: Callable[[], float]) -> None:
        self.facts, self.rails = facts(devices, counts_energy=True), _rails(devices)
        self._driver, self._devices, self._clock = driver, tuple(devices), clock
        with refusing("nvml"):
            self._counts = RisingCounts(self._joules(), "the driver was reloaded or the GPU reset")

    def read(self) -> tuple[float, dict[str, float]]:
        """Return (monotonic seconds, joules of every GPU since it was opened).

        Raises:
            ProbeReadError: a GPU does not answer, or its counter went back: the driver was reloaded.
        """
        return self._clock(), self._counts.since(self._joules())

    def close(self) -> None:
        """Release the driver. Calling twice is allowed."""
        self._driver.close()

    def _joules(self) -> dict[str, float]:
        return {device.uuid: self._driver.joules(device) for device in self._devices}


class GpuPowerReader:
    """Reads the watts of every GPU."""

    def __init__(self, driver: Driver, devices: Sequence[GpuDevice]) -> None:
        self._driver, self._devices = driver, tuple(devices)

    def __call__(self) -> dict[str, float]:
        """Return watts by UUID.

        Raises:
            ProbeReadError: a GPU gives no figure.
        """
        return {device.uuid: self._driver.watts(device) for device in self._devices}


class NvmlSampler:
    """The driver's power figures, polled; releases the driver when it stops."""

    def __init__(
        self, driver: Driver, devices: Sequence[GpuDevice], read: GpuPowerReader, clock: Callable[[], float]
    ) -> None:
        self.facts, self.rails = facts(devices, counts_energy=False), _rails(devices)
        self._driver = driver
        self._sampler = PolledSampler(self.facts, self.rails, read, _POLL_S, clock=clock)

    def start(self) -> None:
        """Begin to sample."""
        self._sampler.start()

    def drain(self) -> dict[str, tuple[Array, Array]]:
        """Return and forget the samples so far; see `PowerSampler.drain`."""
        return self._sampler.drain()

    def stop(self) -> None:
        """End sampling and release the driver. Calling twice is allowed."""
        self._sampler.stop()
        self._driver.close()


def choose(devices: Sequence[GpuDevice], options: ProbeOptions) -> tuple[GpuDevice, ...]:
    """Return the GPUs to measure.

    Raises:
        ProbeUnavailableError: none, none visible, or one that is not here.
    """
    if not devices:
        raise RefusalError("nvml", "the NVIDIA driver is here but lists no GPU", "look into nvidia-smi -L and dmesg")
    if options.select is not None:
        return selected(options.select, devices)
    uuids = visible_uuids(options.visible_devices, devices, options.device_order)
    if not uuids:
        reason = f"CUDA_VISIBLE_DEVICES='{options.visible_devices}' shows no GPU of this machine"
        raise RefusalError("nvml", reason, "unset it, or choose a GPU with --select")
    return tuple(device for uuid in uuids for device in devices if device.uuid == uuid)


def facts(devices: Sequence[GpuDevice], *, counts_energy: bool) -> ProbeFacts:
    """Say what is known about the figures of these GPUs."""
    notes = ["energy counter of the driver" if counts_energy else "no energy counter on this GPU, power polled"]
    update_s = _UPDATE_S
    if not counts_energy:
        averaged = any(_is_averaged(device) for device in devices)
        update_s = _AVERAGE_S if averaged else _UPDATE_S
        notes.append("each figure is an average over 1 s" if averaged else "figures are instantaneous")
    if len(devices) > 1:
        notes.append(f"sum of {len(devices)} GPUs, idle ones included")
    notes += dict.fromkeys(note for device in devices for note in _chip_notes(device))
    return ProbeFacts(
        name="nvml",
        boundary="gpu",
        provenance="measured",
        update_interval_s=update_s,
        quantum_j=_QUANTUM_J if counts_energy else 0.0,
        accuracy=_ACCURACY,
        note="; ".join(notes),
    )


def _chip_notes(device: GpuDevice) -> list[str]:
    notes = []
    if _GA100.search(device.name) or _GH100.search(device.name):
        # Yang et al., "Part-time power measurements", SC24, arXiv 2312.02741: measured on A100 and H100.
        notes.append(
            "25 % duty: this chip senses power for 25 ms of each 100 ms; repeat the work often, and "
            "let windows start at varying phases"
        )
    if _SUPERCHIP.search(device.name):
        notes.append("on this superchip the counter may cover the module, CPU and memory included")
    if device.is_split:
        notes.append(f"shared: {device.uuid} is split by MIG and the figure covers all its slices")
    return notes


def _is_averaged(device: GpuDevice) -> bool:
    """Say whether the power figure is an average over 1 s: from Ampere on, but not on GA100 (nvml.h)."""
    if device.architecture is None:
        return True
    return device.architecture >= _AMPERE and not _GA100.search(device.name)


def _has_counters(driver: Driver, devices: Sequence[GpuDevice]) -> bool:
    with refusing("nvml"):
        return all(driver.counts_energy(device) for device in devices)


def _rails(devices: Sequence[GpuDevice]) -> tuple[Rail, ...]:
    return tuple(Rail(name=device.uuid, boundary="gpu") for device in devices)


_: type[PowerProbe] = NvmlProbe
