"""What every registered plugin keeps to, ours and outsiders' alike."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib.metadata import metadata
from typing import cast, get_args

import pytest

from ipj_edge import plugins
from ipj_edge.errors import ProbeUnavailableError
from ipj_edge.protocols import Converter, EnergyCounter, PowerSampler
from ipj_edge.values import Availability, Boundary, Precision, ProbeOptions

HEAVY = {
    "torch", "torchao", "onnx", "onnxscript", "onnxruntime", "openvino", "nncf", "ai_edge_litert", "ai_edge_quantizer",
    "litert_torch", "tflite_runtime", "serial", "pynvml", "plotly", "PIL", "safetensors", "sklearn", "scipy",
}  # fmt: skip
# Probes that need no package beyond the core's, and so no extra.
WITHOUT_EXTRA = {"rapl", "hwmon", "battery", "jetson", "rpi5", "ipmi", "replay", "modelled"}
GROUPS = (plugins.SOURCES, plugins.CONVERTERS, plugins.TARGETS, plugins.POWER_PROBES, plugins.EXIT_RULES)
EVERY = [(group, name) for group in GROUPS for name in plugins.names(group)]


@pytest.mark.parametrize(("group", "name"), EVERY)
def test_a_plugin_carries_the_name_it_is_registered_under_and_says_what_it_is(group: str, name: str) -> None:
    plugin = plugins.load(group, name)
    assert plugin.name == name
    assert inspect.getdoc(type(plugin))


def test_loading_every_plugin_imports_nothing_heavy() -> None:
    code = (
        "import json, sys\nfrom ipj_edge import plugins\n"
        f"for group, name in {EVERY!r}:\n    plugins.load(group, name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not set(json.loads(out)) & HEAVY


@pytest.mark.parametrize("name", plugins.names(plugins.TARGETS))
def test_a_target_says_what_it_runs_and_what_sees_it(name: str) -> None:
    target = plugins.load_target(name)
    assert set(target.precisions) <= set(get_args(Precision))
    assert target.boundaries
    assert set(target.boundaries) <= set(get_args(Boundary))
    found = target.availability()
    assert isinstance(found, Availability)
    assert found.available or found.reason


@pytest.mark.parametrize("name", plugins.names(plugins.CONVERTERS))
def test_a_converter_makes_files_for_targets_that_exist_in_precisions_they_run(name: str) -> None:
    converter = cast(Converter, plugins.load(plugins.CONVERTERS, name))
    assert converter.form
    for target in converter.targets:
        assert set(converter.precisions) & set(plugins.load_target(target).precisions), target


@pytest.mark.parametrize("name", plugins.names(plugins.POWER_PROBES))
def test_a_probe_reads_or_says_why_not(name: str) -> None:
    probe = plugins.load_probe(name)
    found = probe.availability(ProbeOptions())
    if not found.available:
        assert found.reason
        with pytest.raises(ProbeUnavailableError, match=r"\w+"):
            probe.open(ProbeOptions())
        return
    sensor = probe.open(ProbeOptions())
    try:
        assert isinstance(sensor, EnergyCounter | PowerSampler)
        assert sensor.facts.name == name
        assert any(rail.counted for rail in sensor.rails)
        assert sensor.facts.update_interval_s > 0
    finally:
        sensor.close() if isinstance(sensor, EnergyCounter) else sensor.stop()


@pytest.mark.parametrize("name", plugins.names(plugins.SOURCES))
def test_a_source_recognises_by_form_alone(name: str) -> None:
    opener = plugins.load_source_opener(name)
    accepted = [
        place
        for place in ("nowhere.py:build", "nowhere.pt2", "nowhere.onnx", "nowhere.tflite")
        if opener.accepts(place)
    ]
    assert len(accepted) <= 1


def test_every_target_and_serial_probe_has_an_extra_of_its_own_name() -> None:
    extras = set(metadata("ipj-edge").get_all("Provides-Extra") or ())
    wanted = {*plugins.names(plugins.TARGETS), *plugins.names(plugins.POWER_PROBES)} - WITHOUT_EXTRA
    assert wanted <= extras
