"""NVML under load on a real GPU: the counter moves, agrees with integrated power, updates as often as stated."""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from ipj_edge.protocols import EnergyCounter
from ipj_edge.values import ProbeOptions
from ipj_edge_probes.libraries.nvml import NvmlProbe
from ipj_edge_probes.libraries.nvml_driver import Driver

pytestmark = [pytest.mark.hardware, pytest.mark.slow]

WINDOW_S = 10.0


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    found = NvmlProbe().availability(ProbeOptions())
    if not found.available:
        pytest.skip(f"no GPU to measure: {found.reason}")
    with Driver(pynvml) as opened:
        yield opened


@pytest.fixture
def counter(driver: Driver) -> Iterator[EnergyCounter]:
    opened = NvmlProbe().open(ProbeOptions(select="0"))
    if not isinstance(opened, EnergyCounter):
        pytest.skip("this GPU has no energy counter")
    yield opened
    opened.close()


class Load:
    """Keeps a GPU busy by filling its memory over and over, through the driver's own library."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.passes = 0

    def __enter__(self) -> Load:
        self._thread.start()
        time.sleep(2)  # clocks and the averaging window settle
        assert self.passes > 0, "the load did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        cuda = ctypes.CDLL("libcuda.so.1")
        device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        size = 1 << 30
        assert cuda.cuInit(0) == 0
        assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        assert cuda.cuCtxSetCurrent(context) == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)) == 0
        while not self._stop.is_set():
            for _ in range(20):
                cuda.cuMemsetD32_v2(memory, ctypes.c_uint(self.passes), ctypes.c_size_t(size // 4))
            assert cuda.cuCtxSynchronize() == 0
            self.passes += 1
        cuda.cuMemFree_v2(memory)
        cuda.cuDevicePrimaryCtxRelease_v2(device)


def watts_over(counter: EnergyCounter, seconds: float) -> float:
    start_s, start_j = counter.read()
    time.sleep(seconds)
    end_s, end_j = counter.read()
    return (sum(end_j.values()) - sum(start_j.values())) / (end_s - start_s)


def test_load_costs_more_than_idle(counter: EnergyCounter):
    idle_w = watts_over(counter, WINDOW_S)
    with Load():
        busy_w = watts_over(counter, WINDOW_S)
    assert 0 < idle_w < busy_w < 2000


def test_the_counter_agrees_with_integrated_power_within_a_tenth(driver: Driver, counter: EnergyCounter):
    gpu = driver.devices()[0]
    with Load():
        start_s, start_j = counter.read()
        samples_w = []
        while time.monotonic() - start_s < WINDOW_S:
            samples_w.append(driver.watts(gpu))
            time.sleep(0.05)
        end_s, end_j = counter.read()
    counted_w = (end_j[gpu.uuid] - start_j[gpu.uuid]) / (end_s - start_s)
    assert counted_w == pytest.approx(statistics.fmean(samples_w), rel=0.1)


def test_the_counter_updates_at_least_as_often_as_stated(counter: EnergyCounter):
    changes_s = []
    with Load():
        _, last_j = counter.read()
        end_s = time.monotonic() + 5
        while time.monotonic() < end_s:
            now_s, now_j = counter.read()
            if now_j != last_j:
                changes_s.append(now_s)
                last_j = now_j
            time.sleep(0.001)
    steps_s = [later - earlier for earlier, later in pairwise(changes_s)]
    assert len(steps_s) >= 10
    assert statistics.median(steps_s) <= 1.2 * counter.facts.update_interval_s
