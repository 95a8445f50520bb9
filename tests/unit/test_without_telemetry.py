"""Engines are imported with their reporting switched off, and the process is left as it was."""

from __future__ import annotations

import os
import sys
import types

import pytest

from ipj_edge.errors import MissingDependencyError
from ipj_edge.plugins import needs, without_telemetry

MODULE, VARIABLE = "openvino_telemetry", "ORT_DISABLE_TELEMETRY"


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)


def test_inside_the_reporter_cannot_be_imported_and_the_variable_is_set():
    with without_telemetry():
        assert os.environ[VARIABLE] == "1"
        with pytest.raises(ModuleNotFoundError):
            __import__(MODULE)
    assert MODULE not in sys.modules
    assert VARIABLE not in os.environ


def test_nested_blocks_end_in_order():
    with without_telemetry():
        with without_telemetry():
            pass
        assert sys.modules[MODULE] is None
        assert os.environ[VARIABLE] == "1"
    assert MODULE not in sys.modules
    assert VARIABLE not in os.environ


def test_what_the_process_had_is_put_back(monkeypatch):
    own = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, own)
    monkeypatch.setenv(VARIABLE, "0")
    with without_telemetry():
        assert sys.modules[MODULE] is None
    assert sys.modules[MODULE] is own
    assert os.environ[VARIABLE] == "0"


def test_it_is_put_back_when_the_block_fails():
    with pytest.raises(MissingDependencyError), needs("some-extra"):
        __import__("a_package_nobody_has")
    assert MODULE not in sys.modules
    assert VARIABLE not in os.environ
