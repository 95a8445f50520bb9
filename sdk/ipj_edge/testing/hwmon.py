"""Fake sysfs trees with the kernel's own layouts: hwmon chips, INA3221 of both JetPacks, power supplies.

Class entries are links into ``devices``, as the kernel makes them, so that code which resolves links, meets
dangling ones or tells chips by their device is put to the test.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, object]
Channels = Mapping[str, tuple[int, int]]


class FakeSysfs:
    """A sysfs tree in a folder of its own.

    Attributes:
        root: What to pass as ``sysfs_root``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def hwmon(self, name: str, files: Files, *, device: str = "i2c-1/1-0040") -> Path:
        """Add a chip and return its folder.

        Args:
            name: What its driver calls it.
            files: Contents by file name, e.g. ``{"power1_input": 2500000}`` for 2.5 W.
            device: Its device below ``devices``.
        """
        return self._hwmon_under(self.root / "devices" / device, name, files, nested="hwmon")

    def ina3221(
        self,
        channels: Mapping[str, tuple[int, int]],
        *,
        device: str = "i2c-1/1-0040",
        update_interval_ms: int = 0,
    ) -> Path:
        """Add an INA3221 as the mainline driver shows it (JetPack 5 and newer) and return its folder.

        Args:
            channels: (mV, mA) by label, up to three; shunt voltages and sums are added, as real ones have.
            device: Its device below ``devices``.
            update_interval_ms: 0 leaves the file out, as older drivers do.
        """
        files: dict[str, object] = {}
        for index, (label, (millivolts, milliamperes)) in enumerate(channels.items(), start=1):
            files |= {f"in{index}_label": label, f"in{index}_input": millivolts, f"in{index}_enable": 1}
            # 5 mOhm shunts; the driver shows µV where the ABI says mV.
            files |= {f"curr{index}_input": milliamperes, f"in{index + 3}_input": milliamperes * 5}
        files |= {"in7_label": "sum of shunt voltages", "in7_input": 5 * sum(ma for _, ma in channels.values())}
        files |= {"curr4_input": sum(ma for _, ma in channels.values())}
        files |= {"update_interval": update_interval_ms} if update_interval_ms else {}
        folder = self.hwmon("ina3221", files, device=device)
        self._driver_link("ina3221", self.root / "devices" / device)
        return folder

    def ina3221x(self, channels: Channels, *, device: str = "i2c-6/6-0040") -> Path:
        """Add an INA3221 as JetPack 4 shows it (industrial I/O, power in mW) and return its folder."""
        place = self.root / "devices" / device
        index = len(list(self.root.glob("devices/**/iio:device*")))
        files: dict[str, object] = {"name": "ina3221x"}
        for number, (label, (millivolts, milliamperes)) in enumerate(channels.items()):
            files |= {f"rail_name_{number}": label, f"in_voltage{number}_input": millivolts}
            files |= {f"in_current{number}_input": milliamperes}
            files |= {f"in_power{number}_input": millivolts * milliamperes // 1000}
        folder = place / f"iio:device{index}"
        write_files(folder, files)
        self._driver_link("ina3221x", place)
        return folder

    def power_supply(self, name: str, files: Files, *, device: str = "", mirror: bool = True) -> Path:
        """Add a power supply and return its folder.

        Args:
            name: Name of the supply, e.g. ``BAT0``.
            files: Contents by file name; ``type`` is needed.
            device: Its device below ``devices``; made from the name when empty.
            mirror: Also add what the kernel's power_supply_hwmon makes of it.
        """
        folder = self.root / "devices" / (device or f"LNXSYSTM:00/{name}") / "power_supply" / name
        write_files(folder, files)
        self._link(folder, self.root / "class/power_supply" / name)
        self._link(self.root / "class/power_supply", folder / "subsystem")
        if mirror and "voltage_now" in files and "current_now" in files:
            millis = {"in0_input": files["voltage_now"], "curr1_input": files["current_now"]}
            mirrored = {file: int(str(value)) // 1000 for file, value in millis.items()}
            self._hwmon_under(folder, name.replace("-", "_"), mirrored, nested="")
        return folder

    def model(self, text: str) -> None:
        """Set the device tree's model string."""
        write_files(self.root / "firmware/devicetree/base", {"model": text + "\0"})

    def hide(self, folder: Path) -> None:
        """Remove a chip's folder but leave the links to it: what a container that masks it sees."""
        shutil.rmtree(folder)

    def _hwmon_under(self, device: Path, name: str, files: Files, *, nested: str) -> Path:
        (self.root / "class/hwmon").mkdir(parents=True, exist_ok=True)
        number = len(os.listdir(self.root / "class/hwmon"))
        folder = device / nested / f"hwmon{number}"
        write_files(folder, {"name": name, **files})
        self._link(device, folder / "device")
        self._link(folder, self.root / f"class/hwmon/hwmon{number}")
        return folder

    def _driver_link(self, driver: str, device: Path) -> None:
        self._link(device, self.root / "bus/i2c/drivers" / driver / device.name)

    def _link(self, target: Path, link: Path) -> None:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))


def write_files(folder: Path, files: Files) -> None:
    """Write sysfs-like files: one value and a newline each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")
