"""Fake RAPL trees: the powercap and perf folders of a sysfs, laid out as real machines show them.

They are real files and links, so a probe runs on them unchanged with ``sysfs_root``::

    tree = two_sockets(tmp_path)
    counter = RaplProbe().open(ProbeOptions(sysfs_root=str(tree.sysfs)))
    tree.draw("package-0", joules=3.5)
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# max_energy_range_uj of a register step of 2^-14 J, of 2^-16 J (AMD and some Intel), and of server DRAM (15.3
# µJ).
RANGE_UJ = 262_143_328_850
RANGE_SMALL_UJ = 65_532_610_987
RANGE_DRAM_UJ = 65_712_999_613

INTEL_SKYLAKE = "cpu:type:x86,ven0000fam0006mod0055:feature:,0000"
INTEL_IVY_BRIDGE = "cpu:type:x86,ven0000fam0006mod003A:feature:,0000"
AMD_ROME = "cpu:type:x86,ven0002fam0017mod0031:feature:,0000"


class PowercapTree:
    """A sysfs root with RAPL zones in it.

    Attributes:
        sysfs: The root, for ``ProbeOptions.sysfs_root``.
    """

    def __init__(self, sysfs: Path, modalias: str = INTEL_SKYLAKE) -> None:
        self.sysfs = sysfs
        self._devices = sysfs / "devices/virtual/powercap"
        self._class = sysfs / "class/powercap"
        self._ranges: dict[Path, int] = {}
        self._devices.mkdir(parents=True)
        self._class.mkdir(parents=True)
        cpu = sysfs / "devices/system/cpu"
        cpu.mkdir(parents=True)
        (cpu / "modalias").write_text(modalias + "\n")

    def control_type(self, name: str = "intel-rapl") -> None:
        """Add a control type, the folder that zones lie in."""
        folder = self._devices / name
        folder.mkdir()
        (folder / "enabled").write_text("1\n")
        self._link(folder)

    def zone(self, path: str, name: str, *, energy_uj: int = 1_000_000, range_uj: int | None = RANGE_UJ) -> Path:
        """Add a zone.

        Args:
            path: Its folder's name, e.g. ``intel-rapl:0:1``, which lies in ``intel-rapl:0``.
            name: What its ``name`` file says.
            energy_uj: Counter, in microjoules.
            range_uj: Where the counter wraps; None leaves the file out.
        """
        parts = path.split(":")
        folder = self._devices / parts[0]
        for depth in range(2, len(parts) + 1):
            folder = folder / ":".join(parts[:depth])
        folder.mkdir()
        (folder / "name").write_text(name + "\n")
        (folder / "enabled").write_text("1\n")
        if range_uj is not None:
            (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
            self._ranges[folder] = range_uj
        energy = folder / "energy_uj"
        energy.touch(mode=0o400)
        self._write(energy, energy_uj)
        self._link(folder)
        return folder

    def set_energy(self, path: str, energy_uj: int) -> None:
        """Set a zone's counter, in microjoules. Takes the folder's name, as `zone` does."""
        self._write(self._class / path / "energy_uj", energy_uj)

    def draw(self, path: str, joules: float) -> None:
        """Add energy to a zone's counter as the hardware would, wrapping where it wraps."""
        energy = self._class / path / "energy_uj"
        value = int(energy.read_text()) + round(joules * 1e6)
        modulus = self._ranges.get((self._class / path).resolve())
        self._write(energy, value if modulus is None else value % modulus)

    def permit(self, mode: int) -> None:
        """Change the mode of every counter: 0o444 is what the remedy of a refusal does."""
        for energy in self._devices.rglob("energy_uj"):
            energy.chmod(mode)

    def mask(self) -> None:
        """Hide the zones as Docker and containerd do: the links in ``class`` stay and lead nowhere."""
        shutil.rmtree(self._devices)
        self._devices.mkdir()

    def perf_events(self, cpus: str = "0", events: tuple[str, ...] = ("pkg", "ram", "cores")) -> None:
        """Add the event source ``power`` of perf."""
        folder = self.sysfs / "bus/event_source/devices/power"
        (folder / "events").mkdir(parents=True)
        (folder / "type").write_text("23\n")
        (folder / "cpumask").write_text(cpus + "\n")
        codes = {"cores": 1, "pkg": 2, "ram": 3, "gpu": 4, "psys": 5}
        for event in events:
            (folder / f"events/energy-{event}").write_text(f"event=0x{codes[event]:02x}\n")
            (folder / f"events/energy-{event}.scale").write_text("2.3283064365386962890625e-10\n")
            (folder / f"events/energy-{event}.unit").write_text("Joules\n")

    def cpu(self, number: int, package: int, die: int = 0) -> None:
        """Say which package and die a CPU sits on."""
        topology = self.sysfs / f"devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "die_id").write_text(f"{die}\n")

    def _link(self, folder: Path) -> None:
        link = self._class / folder.name
        link.symlink_to(os.path.relpath(folder, self._class))

    @staticmethod
    def _write(energy: Path, energy_uj: int) -> None:
        """Write the counter in place and in one piece: a reader of the open file never sees half a number."""
        file = os.open(energy, os.O_WRONLY)
        try:
            os.pwrite(file, f"{energy_uj:<20d}\n".encode(), 0)
        finally:
            os.close(file)


def laptop(sysfs: Path) -> PowercapTree:
    """Return one Intel socket with core and uncore, psys where a second package would be, and the MMIO twin."""
    tree = PowercapTree(sysfs)
    tree.control_type()
    tree.zone("intel-rapl:0", "package-0")
    tree.zone("intel-rapl:0:0", "core")
    tree.zone("intel-rapl:0:1", "uncore")
    tree.zone("intel-rapl:1", "psys")
    tree.control_type("intel-rapl-mmio")
    tree.zone("intel-rapl-mmio:0", "package-0")
    return tree


def two_sockets(sysfs: Path) -> PowercapTree:
    """Return two Intel server sockets, each with a DRAM zone and a core zone."""
    tree = PowercapTree(sysfs)
    tree.control_type()
    for socket in range(2):
        tree.zone(f"intel-rapl:{socket}", f"package-{socket}")
        tree.zone(f"intel-rapl:{socket}:0", "dram", range_uj=RANGE_DRAM_UJ)
        tree.zone(f"intel-rapl:{socket}:1", "core")
    return tree


def amd(sysfs: Path) -> PowercapTree:
    """Return an AMD socket: package and core only, in the same ``intel-rapl`` tree."""
    tree = PowercapTree(sysfs, AMD_ROME)
    tree.control_type()
    tree.zone("intel-rapl:0", "package-0", range_uj=RANGE_SMALL_UJ)
    tree.zone("intel-rapl:0:0", "core", range_uj=RANGE_SMALL_UJ)
    return tree


def mirrored_dies(sysfs: Path, dies: int = 4) -> PowercapTree:
    """Return an AMD socket whose dies all show the socket's one counter."""
    tree = PowercapTree(sysfs, AMD_ROME)
    tree.control_type()
    for die in range(dies):
        tree.zone(f"intel-rapl:{die}", f"package-0-die-{die}", energy_uj=123_456_789, range_uj=RANGE_SMALL_UJ)
    return tree


def masked_container(sysfs: Path) -> PowercapTree:
    """Return a laptop's tree as a container sees it."""
    tree = laptop(sysfs)
    tree.mask()
    return tree
