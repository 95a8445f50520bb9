"""The nvml probe against a stub of pynvml: which GPUs, which figures, and what every refusal says."""

from __future__ import annotations

import pytest

from ipj_edge.errors import ProbeReadError, ProbeUnavailableError
from ipj_edge.plugins import load_probe
from ipj_edge.protocols import EnergyCounter, PowerSampler
from ipj_edge.testing.fake_nvml import FakeGpu, StubNvml
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.libraries.nvml import NvmlProbe
from ipj_edge_probes.libraries.nvml_devices import GpuDevice, visible_uuids
from ipj_edge_probes.libraries.nvml_driver import Driver

A, B, C = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000", "GPU-bbbb3333-0000"
TWINS = (GpuDevice(index=0, uuid=A, name="NVIDIA L4"), GpuDevice(index=1, uuid=B, name="NVIDIA L4"))
MIXED = (GpuDevice(index=0, uuid=A, name="NVIDIA T400"), GpuDevice(index=1, uuid=B, name="NVIDIA L4"))
SLICED = (
    GpuDevice(index=0, uuid=A),
    GpuDevice(index=1, uuid=B, slices=("MIG-5e0f-1", "MIG-77aa-2"), is_split=True),
)


def gpus() -> list[FakeGpu]:
    return [
        FakeGpu(uuid=A, name="NVIDIA L4", bus="00000000:01:00.0", energy_mj=5_000, power_mw=30_000, architecture=8),
        FakeGpu(uuid=B, name="NVIDIA L4", bus="00000000:41:00.0", energy_mj=9_000, power_mw=40_000, architecture=8),
    ]


def refusal(stub: StubNvml, options: ProbeOptions | None = None) -> str:
    probe = NvmlProbe(library=stub)
    with pytest.raises(ProbeUnavailableError) as caught:
        probe.open(options or ProbeOptions())
    found = probe.availability(options or ProbeOptions())
    assert not found.available
    assert found.reason in str(caught.value)
    assert found.fix in str(caught.value)
    assert stub.users == 0
    return str(caught.value)


def test_the_probe_is_registered_under_its_name():
    assert load_probe("nvml").name == "nvml"


def test_the_energy_counter_comes_first_and_is_millijoules_since_it_was_opened():
    fake = gpus()
    counter = NvmlProbe(library=StubNvml(fake)).open(ProbeOptions())
    assert isinstance(counter, EnergyCounter)
    assert counter.read()[1] == {A: 0.0, B: 0.0}
    fake[0].energy_mj += 2_500
    assert counter.read()[1] == {A: pytest.approx(2.5), B: 0.0}
    assert counter.facts.quantum_j == 1e-3
    assert counter.facts.boundary == "gpu"
    assert "sum of 2 GPUs" in counter.facts.note


def test_closing_releases_the_driver_once():
    stub = StubNvml(gpus())
    counter = NvmlProbe(library=stub).open(ProbeOptions())
    assert stub.users == 1
    counter.close()
    counter.close()
    assert stub.users == 0


def test_a_counter_that_goes_back_was_reset_and_is_never_taken_for_a_wrap():
    fake = gpus()
    counter = NvmlProbe(library=StubNvml(fake)).open(ProbeOptions())
    fake[1].energy_mj = 3
    with pytest.raises(ProbeReadError, match=rf"{B} went back.*reloaded"):
        counter.read()
    before = counter.read()[1]
    fake[1].energy_mj += 2000
    assert counter.read()[1][B] - before[B] == pytest.approx(2.0)


def test_a_gpu_without_a_counter_gives_power_and_says_so():
    fake = [FakeGpu(uuid=A, name="Tesla P4", energy_return=3, power_mw=30_000, architecture=4)]
    stub = StubNvml(fake)
    sampler = NvmlProbe(library=stub).open(ProbeOptions())
    assert isinstance(sampler, PowerSampler)
    sampler.start()
    _, power_w = sampler.drain()[A]
    assert power_w[0] == pytest.approx(30.0)
    assert "no energy counter" in sampler.facts.note
    sampler.stop()
    sampler.stop()
    assert stub.users == 0


@pytest.mark.parametrize(
    ("name", "architecture", "update_s"),
    [("Tesla P4", 4, 0.1), ("NVIDIA A100-SXM4-40GB", 7, 0.1), ("NVIDIA A10", 7, 1.0), ("unknown", None, 1.0)],
)
def test_power_is_an_average_over_a_second_from_ampere_on_but_not_on_ga100(
    name: str, architecture: int | None, update_s: float
):
    fake = FakeGpu(uuid=A, name=name, energy_return=3, power_mw=1, architecture=architecture)
    sampler = NvmlProbe(library=StubNvml([fake])).open(ProbeOptions())
    assert sampler.facts.update_interval_s == update_s
    assert ("average over 1 s" in sampler.facts.note) is (update_s == 1.0)


@pytest.mark.parametrize(
    ("name", "part_time"),
    [
        ("NVIDIA A100-SXM4-40GB", True),
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA A10", False),
        ("NVIDIA L4", False),
    ],
)
def test_chips_that_sense_a_quarter_of_the_time_say_so(name: str, part_time: bool):
    counter = NvmlProbe(library=StubNvml([FakeGpu(uuid=A, name=name)])).open(ProbeOptions())
    assert ("25 % duty" in counter.facts.note) is part_time


def test_a_superchip_s_counter_may_cover_the_module():
    counter = NvmlProbe(library=StubNvml([FakeGpu(uuid=A, name="NVIDIA GH200 480GB")])).open(ProbeOptions())
    assert "may cover the module" in counter.facts.note


def test_a_gpu_split_by_mig_is_flagged_as_shared():
    fake = FakeGpu(uuid=A, name="NVIDIA L4", slices=("MIG-1", "MIG-2"))
    counter = NvmlProbe(library=StubNvml([fake])).open(ProbeOptions(visible_devices="MIG-2"))
    assert f"shared: {A}" in counter.facts.note
    assert [rail.name for rail in counter.rails] == [A]


@pytest.mark.parametrize(
    ("code", "reason", "fix"),
    [
        (12, "libnvidia-ml.so.1 is not here", "--gpus all"),
        (9, "not loaded", "modprobe nvidia"),
        (18, "another version", "reboot"),
        (4, "may not ask", "run as root"),
        (999, "cannot be read", ""),
    ],
)
def test_a_driver_that_cannot_be_asked_gives_the_reason_and_the_remedy(code: int, reason: str, fix: str):
    message = refusal(StubNvml(gpus(), init_return=code))
    assert reason in message
    assert fix in message


def test_a_driver_without_a_gpu_is_a_reason():
    assert "lists no GPU" in refusal(StubNvml([]))


def test_a_gpu_with_neither_energy_nor_power_is_a_reason():
    assert "does not support" in refusal(StubNvml([FakeGpu(uuid=A, energy_return=3, power_return=3)]))


def test_a_counter_that_this_user_may_not_read_is_a_reason_not_zero_and_not_power():
    fake = gpus()
    fake[0].energy_return = 4
    assert "run as root" in refusal(StubNvml(fake))


def test_a_gpu_that_is_lost_ends_the_measurement():
    fake = gpus()
    counter = NvmlProbe(library=StubNvml(fake)).open(ProbeOptions())
    fake[0].energy_return = 15
    with pytest.raises(ProbeReadError, match="fallen off the bus"):
        counter.read()


@pytest.mark.parametrize(
    ("wanted", "uuids"),
    [(A, [A]), ("1", [B]), ("GPU-bbbb", [B]), ("41:00.0", [B]), (f"{B},0", [B, A]), ("0,0", [A])],
)
def test_a_gpu_is_selected_by_uuid_prefix_address_or_nvml_index(wanted: str, uuids: list[str]):
    counter = NvmlProbe(library=StubNvml(gpus())).open(ProbeOptions(select=wanted))
    assert [rail.name for rail in counter.rails] == uuids


@pytest.mark.parametrize("wanted", ["2", "GPU-", "GPU-cccc", "²", ""])
def test_a_gpu_that_is_not_here_is_refused_with_a_list(wanted: str):
    message = refusal(StubNvml(gpus()), ProbeOptions(select=wanted))
    assert A in message
    assert B in message


@pytest.mark.parametrize(
    ("value", "uuids"),
    [
        (None, (A, B)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", (A,)),
        ("1", (B,)),
        ("1,0", (B, A)),
        ("1,-1,0", (B,)),
        ("0,7,1", (A,)),
        (B, (B,)),
        (f"{B},{A}", (B, A)),
        ("GPU-bbbb", (B,)),
        ("GPU-", ()),
        (f" {B} , 0", (B, A)),
        ("0,0", (A,)),
    ],
)
def test_cuda_visible_devices_is_mapped_as_cuda_does(value: str | None, uuids: tuple[str, ...]):
    assert visible_uuids(value, TWINS) == uuids


def test_a_prefix_that_two_gpus_share_names_none():
    devices = (*TWINS, GpuDevice(index=2, uuid=C))
    assert visible_uuids("GPU-bbbb", devices) == ()
    assert visible_uuids("GPU-bbbb3", devices) == (C,)


def test_an_index_among_different_models_needs_the_order_of_pci():
    assert visible_uuids("1", MIXED, "PCI_BUS_ID") == (B,)
    for order in (None, "FASTEST_FIRST"):
        with pytest.raises(ProbeUnavailableError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
            visible_uuids("0", MIXED, order)


def test_the_order_does_not_matter_for_uuids_or_when_all_are_visible():
    assert visible_uuids(B, MIXED) == (B,)
    assert set(visible_uuids("1,0", MIXED)) == {A, B}


@pytest.mark.parametrize("value", ["MIG-77aa-2", "MIG-77", f"MIG-{B}/1/0", "MIG-5e0f-1,MIG-77aa-2"])
def test_a_mig_slice_stands_for_its_gpu(value: str):
    assert visible_uuids(value, SLICED) == (B,)


def test_only_the_gpus_that_cuda_shows_are_measured():
    counter = NvmlProbe(library=StubNvml(gpus())).open(ProbeOptions(visible_devices=B))
    assert [rail.name for rail in counter.rails] == [B]
    assert "shows no GPU" in refusal(StubNvml(gpus()), ProbeOptions(visible_devices=""))


def test_what_the_user_selects_comes_before_what_cuda_shows():
    counter = NvmlProbe(library=StubNvml(gpus())).open(ProbeOptions(visible_devices=B, select=A))
    assert [rail.name for rail in counter.rails] == [A]


def test_the_driver_lists_a_gpu_with_what_it_says_of_itself():
    with Driver(StubNvml([FakeGpu(uuid=A, slices=("MIG-1",)), *gpus()[1:]])) as driver:
        first, second = driver.devices()
    assert first == GpuDevice(index=0, uuid=A, slices=("MIG-1",), is_split=True)
    assert second.bus_id == "00000000:41:00.0"
