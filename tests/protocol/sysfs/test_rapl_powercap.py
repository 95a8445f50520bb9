import errno
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge.energy import choose_probe, measure
from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.testing import powercap
from ipj_edge.values import ProbeFacts, ProbeOptions
from ipj_edge_probes.sysfs.rapl import RaplProbe
from ipj_edge_probes.sysfs.rapl_powercap import PowercapCounter, Zone, mirrored_dies


def options(tree, **changes):
    return ProbeOptions(sysfs_root=str(tree.sysfs), **changes)


def opened(tree):
    return RaplProbe().open(options(tree))


def total(counter):
    joules = counter.read()[1]
    return sum(joules[rail.name] for rail in counter.rails if rail.counted)


def test_package_and_dram_are_added_and_core_is_a_part(tmp_path):
    tree = powercap.two_sockets(tmp_path / "sys")
    counter = opened(tree)
    for socket in range(2):
        tree.draw(f"intel-rapl:{socket}", 10.0)
        tree.draw(f"intel-rapl:{socket}:0", 2.0)
        tree.draw(f"intel-rapl:{socket}:1", 7.0)
    _, joules = counter.read()
    assert joules == pytest.approx(
        {"package-0": 10, "package-1": 10, "dram-0": 2, "dram-1": 2, "core-0": 7, "core-1": 7}
    )
    assert total(counter) == pytest.approx(24.0)
    assert {rail.boundary for rail in counter.rails if rail.name.startswith("dram")} == {"dram"}


def test_psys_and_the_mmio_twin_are_never_added(tmp_path):
    tree = powercap.laptop(tmp_path / "sys")
    counter = opened(tree)
    for zone, joules in (("intel-rapl:0", 9.6), ("intel-rapl:0:0", 3.0), ("intel-rapl:0:1", 1.0)):
        tree.draw(zone, joules)
    tree.draw("intel-rapl:1", 14.4)
    tree.draw("intel-rapl-mmio:0", 9.6)
    assert total(counter) == pytest.approx(9.6)
    assert [rail.name for rail in counter.rails if not rail.counted] == ["core-0", "psys", "uncore-0"]


def test_the_msr_zone_is_kept_of_the_two(tmp_path):
    tree = powercap.laptop(tmp_path / "sys")
    counter = opened(tree)
    tree.draw("intel-rapl-mmio:0", 5.0)
    assert total(counter) == 0.0
    tree.draw("intel-rapl:0", 5.0)
    assert total(counter) == pytest.approx(5.0)


def test_a_machine_with_mmio_alone_is_measured_by_it(tmp_path):
    tree = powercap.PowercapTree(tmp_path / "sys")
    tree.control_type("intel-rapl-mmio")
    tree.zone("intel-rapl-mmio:0", "package-0")
    counter = opened(tree)
    tree.draw("intel-rapl-mmio:0", 5.0)
    assert total(counter) == pytest.approx(5.0)


def test_mirrored_dies_count_once_and_that_is_said(tmp_path):
    tree = powercap.mirrored_dies(tmp_path / "sys")
    counter = opened(tree)
    for die in range(4):
        tree.draw(f"intel-rapl:{die}", 68.0)
    assert total(counter) == pytest.approx(68.0)
    assert "package-0-die-1, package-0-die-2, package-0-die-3 left out" in counter.facts.note


def test_dies_with_counters_of_their_own_are_all_added(tmp_path):
    tree = powercap.PowercapTree(tmp_path / "sys")
    tree.control_type()
    for die in range(2):
        tree.zone(f"intel-rapl:{die}", f"package-0-die-{die}", energy_uj=1_000_000 + 777_777 * die)
        tree.zone(f"intel-rapl:{die}:0", "dram", energy_uj=5_000_000 + 1000 * die)
    counter = opened(tree)
    for die in range(2):
        tree.draw(f"intel-rapl:{die}", 10.0)
        tree.draw(f"intel-rapl:{die}:0", 1.0)
    assert total(counter) == pytest.approx(22.0)
    assert [rail.name for rail in counter.rails][:2] == ["dram-0-die-0", "dram-0-die-1"]


def test_dies_that_were_equal_by_chance_are_not_mirrors(tmp_path):
    tree = powercap.mirrored_dies(tmp_path / "sys", dies=2)
    zones = [
        Zone(
            rail=f"package-0-die-{die}",
            package=f"package-0-die-{die}",
            energy=tree.sysfs / f"class/powercap/intel-rapl:{die}/energy_uj",
            range_j=65532.0,
            is_mmio=False,
        )
        for die in range(2)
    ]
    assert mirrored_dies(zones) == {"package-0-die-1"}
    assert mirrored_dies(zones, wait=lambda seconds: tree.draw("intel-rapl:1", 0.5)) == set()


def test_a_wrap_is_undone(tmp_path):
    tree = powercap.laptop(tmp_path / "sys")
    tree.set_energy("intel-rapl:0", 262_143_000_000)
    counter = opened(tree)
    tree.set_energy("intel-rapl:0", 500_000)
    assert total(counter) == pytest.approx(0.828850, abs=1e-9)


@given(st.integers(0, powercap.RANGE_UJ - 1), st.lists(st.floats(0.0, 150.0), min_size=1, max_size=12))
def test_a_counter_that_wraps_anywhere_gives_the_same_energy(start_uj, steps_j):
    now_s, value = [0.0], [start_uj]
    with tempfile.NamedTemporaryFile() as file:
        zone = Zone(
            rail="package-0",
            package="package-0",
            energy=Path(file.name),
            range_j=powercap.RANGE_UJ * 1e-6,
            is_mmio=False,
        )
        counter = PowercapCounter(
            [zone], FACTS, pread=lambda fd, size, offset: b"%d\n" % value[0], clock=lambda: now_s[0]
        )
        for step in steps_j:
            now_s[0] += 1.0
            value[0] = (value[0] + round(step * 1e6)) % powercap.RANGE_UJ
            counter.read()
        assert counter.read()[1]["package-0"] == pytest.approx(sum(steps_j), abs=1e-5)
        counter.close()


FACTS = ProbeFacts(name="rapl", boundary="package", provenance="measured", update_interval_s=0.001)


def scripted(tmp_path, values, *, range_j=powercap.RANGE_UJ * 1e-6, steps_s=1.0):
    """Return a counter of one zone whose reads give the values in turn, an exception where one stands for a
    value.
    """
    file = tmp_path / "energy_uj"
    file.touch()
    script, now_s = iter(values), iter(steps_s * index for index in range(1000))

    def pread(fd, size, offset):
        value = next(script)
        if isinstance(value, OSError):
            raise value
        return value if isinstance(value, bytes) else b"%d\n" % value

    zone = Zone(rail="package-0", package="package-0", energy=file, range_j=range_j, is_mmio=False)
    return PowercapCounter([zone], FACTS, pread=pread, clock=lambda: next(now_s))


def test_the_first_read_is_only_the_baseline(tmp_path):
    counter = scripted(tmp_path, [987_654_321_012, 987_654_321_012])
    assert counter.read()[1] == {"package-0": 0.0}


def test_a_fall_nobody_can_explain_is_an_error_not_a_wrap_and_not_zero(tmp_path):
    counter = scripted(tmp_path, [5_000_000, 1_000, 3_000], range_j=0.0)
    with pytest.raises(ProbeReadError, match="fell from 5000000 to 1000 µJ"):
        counter.read()
    assert counter.read()[1]["package-0"] == pytest.approx(0.002)


def test_a_reset_is_told_from_a_wrap_by_the_power_it_would_take(tmp_path):
    counter = scripted(tmp_path, [5_000_000_000, 1_000_000, 4_000_000])
    with pytest.raises(ProbeReadError, match="it was reset"):
        counter.read()
    assert counter.read()[1]["package-0"] == pytest.approx(3.0)


def test_a_leap_no_processor_can_make_is_rejected(tmp_path):
    counter = scripted(tmp_path, [1_000_000, 300_000_000_000 % powercap.RANGE_UJ, 0])
    with pytest.raises(ProbeReadError, match="more than any processor draws"):
        counter.read()


def test_an_update_that_lands_between_two_quick_reads_is_no_leap(tmp_path):
    counter = scripted(tmp_path, [1_000_000, 1_250_000], steps_s=20e-6)
    assert counter.read()[1]["package-0"] == pytest.approx(0.25)


def test_a_counter_left_unread_for_too_long_is_not_trusted(tmp_path):
    counter = scripted(tmp_path, [1_000_000, 2_000_000, 3_000_000], steps_s=200.0)
    with pytest.raises(ProbeReadError, match="was not read for 200 s"):
        counter.read()


def test_the_heartbeat_comes_before_a_second_wrap(tmp_path):
    tree = powercap.two_sockets(tmp_path / "sys")
    heartbeat_s = opened(tree).facts.heartbeat_s
    assert heartbeat_s == pytest.approx(65_712.999613 / 4000)


@pytest.mark.parametrize("code", [errno.ENODATA, errno.EIO, errno.ENODEV])
def test_a_zone_that_cannot_be_read_is_an_error_that_names_it(tmp_path, code):
    broken = OSError(code, os.strerror(code))
    counter = scripted(tmp_path, [1_000_000, broken, broken, 1_500_000])
    with pytest.raises(ProbeReadError, match=f"package-0: .*{os.strerror(code)}"):
        counter.read()
    assert counter.read()[1]["package-0"] == pytest.approx(0.5)


def test_half_a_file_is_an_error_not_zero(tmp_path):
    counter = scripted(tmp_path, [1_000_000, b"", b""])
    with pytest.raises(ProbeReadError, match="package-0"):
        counter.read()


def test_a_zone_that_is_a_folder_makes_the_probe_unavailable(tmp_path):
    tree = powercap.laptop(tmp_path / "sys")
    energy = tree.sysfs / "class/powercap/intel-rapl:0/energy_uj"
    energy.unlink()
    energy.mkdir()
    with pytest.raises(ProbeUnavailableError, match="cannot be read"):
        opened(tree)


def test_a_part_that_cannot_be_read_is_left_out_and_the_package_stays(tmp_path):
    tree = powercap.laptop(tmp_path / "sys")
    energy = tree.sysfs / "class/powercap/intel-rapl:0:1/energy_uj"
    energy.unlink()
    energy.mkdir()
    counter = opened(tree)
    assert [rail.name for rail in counter.rails] == ["package-0", "core-0", "psys"]


def test_amds_counter_is_the_vendors_model(tmp_path):
    facts = opened(powercap.amd(tmp_path / "sys")).facts
    assert facts.provenance == "vendor-modelled"
    assert "2108.00808" in facts.note
    assert facts.quantum_j == pytest.approx(2.0**-16, rel=1e-3)


def test_before_haswell_the_counter_is_a_model_too(tmp_path):
    tree = powercap.PowercapTree(tmp_path / "sys", powercap.INTEL_IVY_BRIDGE)
    tree.control_type()
    tree.zone("intel-rapl:0", "package-0")
    assert opened(tree).facts.provenance == "vendor-modelled"


def test_intels_counter_is_measured_and_its_step_is_known(tmp_path):
    facts = opened(powercap.two_sockets(tmp_path / "sys")).facts
    assert (facts.provenance, facts.boundary, facts.accuracy) == ("measured", "package", None)
    assert facts.quantum_j == pytest.approx(2.0**-14, rel=1e-3)


def test_a_masked_container_is_named_with_its_way_out(tmp_path):
    tree = powercap.masked_container(tmp_path / "sys")
    state = RaplProbe().availability(options(tree))
    assert not state.available
    assert "masked" in state.reason
    assert "--sysfs-root" in state.fix
    with measure("rapl", options=options(tree)) as energy:
        pass
    assert energy.reading.joules is None
    assert "masked" in energy.reading.reason


def test_a_machine_without_rapl_says_so(tmp_path):
    state = RaplProbe().availability(ProbeOptions(sysfs_root=str(tmp_path)))
    assert not state.available
    assert "no RAPL zones" in state.reason


def test_an_unknown_route_is_refused(tmp_path):
    tree = powercap.laptop(tmp_path / "sys")
    with pytest.raises(ProbeUnavailableError, match="powercap and perf"):
        RaplProbe().open(options(tree, select="msr"))


_AS_NOBODY = """
import os, sys
from ipj_edge.energy import choose_probe, measure, survey
from ipj_edge.values import ProbeOptions

def show(options):
    with measure("rapl", options=options) as energy:
        pass
    return survey("rapl", options).fix, energy.reading, choose_probe("auto", options=options).note

# Once as who we are: Python itself may lie where nobody may read, and imports late.
show(ProbeOptions(sysfs_root="/nonexistent"))
if os.geteuid() == 0:
    os.seteuid(65534)
print(*show(ProbeOptions(sysfs_root=sys.argv[1])), sep="\\n")
"""


@pytest.fixture
def public_folder():
    """Return a folder that every user may enter, as pytest's own is not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_counter_that_root_alone_may_read_is_reported_with_its_remedy(public_folder):
    tree = powercap.two_sockets(public_folder / "sys")
    done = subprocess.run([sys.executable, "-c", _AS_NOBODY, tree.sysfs], capture_output=True, text=True, check=True)
    fix, reading, note = done.stdout.splitlines()
    assert fix == f"sudo chmod a+r {tree.sysfs}/class/powercap/intel-rapl*:*/energy_uj (until reboot)"
    assert reading.startswith("no joules (rapl): RAPL is present but not permitted")
    assert "dram-0, dram-1, package-0, package-1" in reading
    assert fix in reading
    assert fix in note


def test_the_remedy_helps(public_folder):
    tree = powercap.two_sockets(public_folder / "sys")
    subprocess.run(f"chmod a+r {tree.sysfs}/class/powercap/intel-rapl*:*/energy_uj", shell=True, check=True)
    energy = tree.sysfs / "class/powercap/intel-rapl:0:0/energy_uj"
    assert stat.S_IMODE(energy.stat().st_mode) == 0o444
    done = subprocess.run([sys.executable, "-c", _AS_NOBODY, tree.sysfs], capture_output=True, text=True, check=True)
    assert "not permitted" not in done.stdout


def test_auto_takes_rapl_where_it_may_be_read(tmp_path):
    tree = powercap.two_sockets(tmp_path / "sys")
    choice = choose_probe("auto", options=options(tree), boundaries=("package", "process"))
    assert choice.name == "rapl"


def test_a_window_over_a_real_tree_end_to_end(tmp_path):
    tree = powercap.two_sockets(tmp_path / "sys")
    tree.set_energy("intel-rapl:0", powercap.RANGE_UJ - 1_000_000)
    with measure("rapl", options=options(tree), error=0.5) as energy:
        import time

        time.sleep(0.05)
        for zone, joules in (("intel-rapl:0", 5.0), ("intel-rapl:1", 4.0), ("intel-rapl:0:0", 0.5)):
            tree.draw(zone, joules)
    assert energy.reading.joules == pytest.approx(9.5)
    assert energy.reading.coverage == 1.0
