import os
import struct
import sys

import pytest

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.testing import powercap
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.sysfs.rapl import RaplProbe
from ipj_edge_probes.sysfs.rapl_perf import Event, PerfCounter, PerfRoute, open_event


class FakeEvents:
    """Files that hold a 64-bit count, as a perf event's descriptor gives one."""

    def __init__(self, folder):
        self.folder, self.files = folder, {}

    def open(self, event):
        path = self.folder / event.rail
        path.write_bytes(struct.pack("=Q", 10**6))
        file = os.open(path, os.O_RDONLY)
        self.files[event.rail] = path
        return file

    def add(self, rail, joules):
        count = struct.unpack("=Q", self.files[rail].read_bytes())[0] + round(joules * 2**32)
        self.files[rail].write_bytes(struct.pack("=Q", count))


def counter(route, fakes):
    events, _ = route._events()
    facts = RaplProbe().open(ProbeOptions(sysfs_root=str(powercap.amd(fakes.folder / "any").sysfs))).facts
    return PerfCounter(events, facts, fakes.open, read=lambda file, size: os.pread(file, size, 0))


def test_the_events_of_two_packages_are_scaled_and_named(tmp_path):
    tree = powercap.PowercapTree(tmp_path / "sys")
    tree.perf_events(cpus="0,18", events=("pkg", "ram", "cores", "psys"))
    tree.cpu(0, package=0)
    tree.cpu(18, package=1)
    fakes = FakeEvents(tmp_path)
    perf = counter(PerfRoute(tree.sysfs), fakes)
    fakes.add("package-0", 12.5)
    fakes.add("dram-1", 2.25)
    fakes.add("psys-0", 40.0)
    _, joules = perf.read()
    assert joules["package-0"] == pytest.approx(12.5)
    assert joules["dram-1"] == pytest.approx(2.25)
    assert sum(joules[rail.name] for rail in perf.rails if rail.counted) == pytest.approx(14.75)
    perf.close()
    perf.close()


def test_amd_dies_of_one_package_count_once(tmp_path):
    tree = powercap.PowercapTree(tmp_path / "sys", powercap.AMD_ROME)
    tree.perf_events(cpus="0-3", events=("pkg",))
    for cpu in range(4):
        tree.cpu(cpu, package=0, die=cpu)
    events, notes = PerfRoute(tree.sysfs)._events()
    assert [(event.rail, event.cpu) for event in events] == [("package-0", 0)]
    assert "mirror" in notes[0]


def test_intel_dies_of_one_package_are_all_added(tmp_path):
    tree = powercap.PowercapTree(tmp_path / "sys")
    tree.perf_events(cpus="0,20", events=("pkg",))
    tree.cpu(0, package=0, die=0)
    tree.cpu(20, package=0, die=1)
    events, _ = PerfRoute(tree.sysfs)._events()
    assert [event.rail for event in events] == ["package-0-die-0", "package-0-die-1"]


def test_an_event_that_runs_backwards_or_ends_is_an_error(tmp_path):
    tree = powercap.PowercapTree(tmp_path / "sys")
    tree.perf_events(events=("pkg",))
    fakes = FakeEvents(tmp_path)
    perf = counter(PerfRoute(tree.sysfs), fakes)
    fakes.files["package-0"].write_bytes(struct.pack("=Q", 5))
    with pytest.raises(ProbeReadError, match="backwards"):
        perf.read()
    fakes.files["package-0"].write_bytes(b"")
    with pytest.raises(ProbeReadError, match="cannot be read"):
        perf.read()


def refuse(event):
    raise PermissionError(13, "Permission denied")


def test_a_refused_event_is_reported_with_its_remedy(tmp_path):
    tree = powercap.PowercapTree(tmp_path / "sys")
    tree.perf_events()
    state = PerfRoute(tree.sysfs, opener=refuse).availability()
    assert not state.available
    assert state.fix == "sudo sysctl kernel.perf_event_paranoid=0"


def test_without_events_there_is_a_reason(tmp_path):
    state = PerfRoute(tmp_path).availability()
    assert not state.available
    assert "no energy events" in state.reason
    tree = powercap.PowercapTree(tmp_path / "sys")
    tree.perf_events(events=("psys",))
    with pytest.raises(ProbeUnavailableError, match="no energy events"):
        PerfRoute(tree.sysfs).open()


def test_a_refusal_speaks_of_both_ways(tmp_path):
    tree = powercap.masked_container(tmp_path / "sys")
    tree.perf_events(events=("pkg",))  # no such event source in this machine's kernel
    state = RaplProbe().availability(ProbeOptions(sysfs_root=str(tree.sysfs)))
    assert not state.available
    assert "masked" in state.reason
    assert len(state.reason.split("; ")) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="perf is Linux's")
def test_the_system_call_opens_a_real_event():
    # A software event, type 1, config 0: the CPU clock in nanoseconds; the same call that opens an energy event.
    event = Event(rail="clock", kind=1, config=0, cpu=0, scale_j=1e-9)
    try:
        file = open_event(event)
    except OSError as error:
        pytest.skip(f"perf events are not permitted here: {error}")
    try:
        first = struct.unpack("=Q", os.read(file, 8))[0]
        sum(range(200_000))
        assert struct.unpack("=Q", os.read(file, 8))[0] > first
    finally:
        os.close(file)


def test_an_event_the_kernel_does_not_know_is_an_error():
    with pytest.raises(OSError, match=r".+"):
        open_event(Event(rail="x", kind=9999, config=77, cpu=0, scale_j=1.0))
