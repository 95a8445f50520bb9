"""An outsider's plugin with a mistake in it: one clear line that names its package, and everything else goes on."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ipj_edge import plugins
from ipj_edge.cli.findings import findings as _findings
from ipj_edge.conversion.plan.plan import choose_opener
from ipj_edge.energy import survey
from ipj_edge.errors import MissingDependencyError, PluginError
from ipj_edge.values import ProbeOptions

Install = Callable[[str, str, str], None]


@pytest.fixture(autouse=True)
def _outsiders_are_imported_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("outsider", "outsider2"):
        monkeypatch.delitem(sys.modules, name, raising=False)


FAULTS = [
    ("class Other: ...", "AttributeError: module 'outsider' has no attribute 'Plugin'"),
    ("from math import nothing_of_that_name", "ImportError: cannot import name 'nothing_of_that_name'"),
    ("import outsider.inner", "ModuleNotFoundError: No module named 'outsider.inner'"),
    ("def f(:", "SyntaxError"),
    ("class Plugin:\n    def __init__(self, needed): ...", "TypeError"),
    ("class Plugin:\n    name = 'odd'", "AttributeError: it lacks availability, "),
]


@pytest.mark.parametrize(("code", "says"), FAULTS)
def test_a_faulty_plugin_is_one_line_that_names_it_and_its_package(
    install_plugin: Install, code: str, says: str
) -> None:
    install_plugin(plugins.TARGETS, "odd = outsider:Plugin", code)
    with pytest.raises(PluginError) as caught:
        plugins.load_target("odd")
    assert not isinstance(caught.value, MissingDependencyError)
    message = str(caught.value)
    assert message.startswith("target 'odd' of outsider 1.0 cannot be used: outsider:Plugin: ")
    assert says in message
    assert message.endswith("; update or uninstall it")
    assert "\n" not in message


def test_what_an_outsiders_package_lacks_is_no_extra_of_ours(install_plugin: Install) -> None:
    install_plugin(plugins.TARGETS, "odd = outsider:Plugin", "import a_package_nobody_has")
    with pytest.raises(MissingDependencyError) as caught:
        plugins.load_target("odd")
    assert str(caught.value) == (
        "'odd' needs 'a_package_nobody_has': install the package that has it, as outsider 1.0 asks for"
    )


def test_two_packages_that_bring_one_name_are_refused(install_plugin: Install) -> None:
    install_plugin(plugins.TARGETS, "onnxruntime-cpu = outsider:Plugin", "class Plugin: ...")
    with pytest.raises(PluginError, match=r"brought by .*(outsider 1\.0|ipj-edge .*), .*uninstall"):
        plugins.load_target("onnxruntime-cpu")


def test_the_others_of_a_group_work_beside_a_faulty_one(
    install_plugin: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install_plugin(plugins.SOURCES, "aaa = outsider:Plugin", "raise RuntimeError('no licence')")
    with caplog.at_level(logging.WARNING):
        assert choose_opener("net.onnx").name == "onnx"
    assert "source 'aaa' of outsider 1.0 cannot be used: outsider:Plugin: RuntimeError: no licence" in caplog.text


def test_doctor_and_probes_list_a_faulty_plugin_as_one_that_does_not_work(install_plugin: Install) -> None:
    install_plugin(plugins.TARGETS, "odd = outsider:Plugin", "class Plugin: ...")
    install_plugin(plugins.POWER_PROBES, "oddprobe = outsider2:Plugin", "class Plugin: ...")
    findings = {finding.subject: finding for finding in _findings.collect()}
    assert findings["target odd"].state == "missing"
    assert "it lacks" in findings["target odd"].detail
    assert "it lacks" in findings["probe oddprobe"].detail
    report = survey("oddprobe", ProbeOptions())
    assert not report.available
    assert "outsider2 1.0" in report.reason


def test_targets_lists_a_faulty_plugin_beside_the_others(
    install_plugin: Install, ipj_edge_cli: Callable[..., Any]
) -> None:
    install_plugin(plugins.TARGETS, "odd = outsider:Plugin", "class Plugin: ...")
    done = ipj_edge_cli("targets")
    assert done.code == 0, done
    assert "onnxruntime-cpu" in done.out
    assert "target 'odd' of outsider 1.0" in done.out
