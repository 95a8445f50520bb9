"""A fake NVIDIA driver: a C library built on the fly for ``nvidia-ml-py``, and a stub of its Python module.

The library goes through the real package and the real loader, in a process of its own::

    library = build(tmp_path / "lib")                 # needs gcc
    write_state(state, [FakeGpu(uuid="GPU-1", power_mw=50_000)])
    subprocess.run([...], env=os.environ | environment(library, state))

The stub is for many quick cases in one process: ``NvmlProbe(library=StubNvml([FakeGpu(uuid="GPU-1")]))``.
"""

from __future__ import annotations

import shutil
import subprocess
import types
from collections.abc import Sequence
from pathlib import Path

import msgspec

OK, NOT_SUPPORTED = 0, 3


class FakeGpu(msgspec.Struct, kw_only=True):
    """What a fake GPU says; change it while it is in use.

    Attributes:
        uuid: Its UUID.
        name: Product name; empty when the driver does not give it.
        bus: PCI address; empty when the driver does not give it.
        energy_mj: Its energy counter, in mJ.
        power_mw: Its power, in mW.
        energy_return: NVML's return code for the counter.
        power_return: NVML's return code for the power.
        architecture: NVML's number of its architecture; None when the driver does not give it.
        slices: UUIDs of its MIG slices.
        since_s: Moment of CLOCK_MONOTONIC from which the C library's counter grows by the power; None: it stands.
    """

    uuid: str
    name: str = ""
    bus: str = ""
    energy_mj: int = 0
    power_mw: int = 0
    energy_return: int = OK
    power_return: int = OK
    architecture: int | None = None
    slices: tuple[str, ...] = ()
    since_s: float | None = None


def has_compiler() -> bool:
    """Say whether `build` can work here."""
    return shutil.which("gcc") is not None


def build(folder: Path, *, bare: bool = False) -> Path:
    """Compile the fake library as ``libnvidia-ml.so.1`` into a folder, and return the folder.

    Args:
        folder: Where to; made when missing.
        bare: Leave out all but the ten functions that ``nvidia-ml-py`` cannot do without.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("fake_nvml.c")
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Wl,-soname,libnvidia-ml.so.1", *(["-DBARE"] if bare else [])]
    subprocess.run([*command, "-o", str(folder / "libnvidia-ml.so.1"), str(source)], check=True)
    return folder


def write_state(file: Path, gpus: Sequence[FakeGpu], *, init_return: int = OK) -> None:
    """Write what the C library answers from; may be called while it is in use."""
    lines = [f"init {init_return}", f"count {len(gpus)}"]
    for index, gpu in enumerate(gpus):
        told: dict[str, object] = {
            "uuid": gpu.uuid,
            "name": gpu.name or None,
            "bus": gpu.bus or None,
            "arch": gpu.architecture,
            "mig": 1 if gpu.slices else None,
            "slices": ",".join(gpu.slices) or None,
            "energy_mj": gpu.energy_mj,
            "energy_return": gpu.energy_return,
            "power_mw": gpu.power_mw,
            "power_return": gpu.power_return,
            "since_s": gpu.since_s,
        }
        lines += [f"{index}.{key} {value}" for key, value in told.items() if value is not None]
    swap = file.with_suffix(".new")
    swap.write_text("\n".join(lines) + "\n")
    swap.replace(file)


def environment(library: Path, state: Path) -> dict[str, str]:
    """Return the variables that make a process load the fake library and answer from a state file."""
    return {"LD_LIBRARY_PATH": str(library), "IPJ_FAKE_NVML": str(state)}


class StubError(Exception):
    """What the stub raises, as pynvml's NVMLError.

    Attributes:
        value: NVML's return code.
    """

    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__(f"code {value}")


class StubNvml:
    """The part of module ``pynvml`` that a power probe needs; handles are the fake GPUs themselves.

    Attributes:
        gpus: The GPUs.
        init_return: NVML's return code for nvmlInit.
        users: Calls of nvmlInit not yet followed by nvmlShutdown.
    """

    NVMLError = StubError

    def __init__(self, gpus: Sequence[FakeGpu], *, init_return: int = OK) -> None:
        self.gpus, self.init_return, self.users = list(gpus), init_return, 0

    def __getattr__(self, name: str) -> object:
        if name.startswith("nvml"):
            return _raising(13)  # FUNCTION_NOT_FOUND, as an older library
        raise AttributeError(name)

    def nvmlInit(self) -> None:
        """Initialise."""
        _check(self.init_return)
        self.users += 1

    def nvmlShutdown(self) -> None:
        """Release."""
        self.users -= 1

    def nvmlDeviceGetCount(self) -> int:
        """Return how many GPUs there are."""
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        """Return a GPU."""
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle: FakeGpu | str) -> str:
        """Return the UUID of a GPU or of a MIG slice."""
        return handle if isinstance(handle, str) else handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:
        """Return the product name."""
        _check(OK if handle.name else NOT_SUPPORTED)
        return handle.name

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu) -> types.SimpleNamespace:
        """Return the PCI address."""
        _check(OK if handle.bus else NOT_SUPPORTED)
        return types.SimpleNamespace(busId=handle.bus)

    def nvmlDeviceGetArchitecture(self, handle: FakeGpu) -> int | None:
        """Return the number of the architecture."""
        _check(NOT_SUPPORTED if handle.architecture is None else OK)
        return handle.architecture

    def nvmlDeviceGetMigMode(self, handle: FakeGpu) -> list[int]:
        """Return current and pending MIG mode."""
        return [int(bool(handle.slices))] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: FakeGpu) -> int:
        """Return how many slices there may be."""
        return 7 if handle.slices else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: FakeGpu, index: int) -> str:
        """Return a slice."""
        _check(OK if index < len(handle.slices) else 6)
        return handle.slices[index]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: FakeGpu) -> int:
        """Return mJ since the driver was loaded."""
        _check(handle.energy_return)
        return handle.energy_mj

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> int:
        """Return mW."""
        _check(handle.power_return)
        return handle.power_mw


def _check(code: int) -> None:
    if code != OK:
        raise StubError(code)


def _raising(code: int) -> object:
    def call(*arguments: object) -> None:
        raise StubError(code)

    return call
