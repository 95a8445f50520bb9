"""The node tests of the installed onnx package, through the real pipeline: few cases that hold every operator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from conformance_cases import TARGETS, write_node_cases
from conformance_pool import Case, Child, run_all
from conformance_run import is_fault

# Cases that were wrong, or a traceback, at one time.
ONCE_FAILED = (
    "test_nonzero_example",
    "test_dft_opset19",
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[Case, dict[str, str]]:
    folder = tmp_path_factory.mktemp("nodes")
    names = write_node_cases(folder, ())
    names += write_node_cases(folder, [name for name in ONCE_FAILED if name not in names])
    return run_all([Case("nodes", name, target, folder=str(folder)) for name in names for target in TARGETS], workers=2)


def test_no_node_is_wrong_where_its_engine_is_right_and_none_ends_in_a_traceback(
    told: dict[Case, dict[str, str]],
) -> None:
    faults = [f"{case.name} on {case.target}: {answer['note']}" for case, answer in told.items() if is_fault(answer)]
    assert not faults, "\n".join(faults)


def test_most_nodes_are_published_on_every_target(told: dict[Case, dict[str, str]]) -> None:
    for target in TARGETS:
        counts = Counter(answer["outcome"] for case, answer in told.items() if case.target == target)
        possible = counts["right"] + counts["refused, engine right"]
        assert counts["right"] >= 0.8 * possible, counts


def test_a_case_that_kills_its_process_is_an_outcome_and_the_next_one_runs(tmp_path: Path) -> None:
    child = Child()
    try:
        gone = child.ask(Case("nodes", "test_relu", "no-such-target", folder=str(tmp_path)))  # no file of this name
        assert gone["outcome"] == "died"
        write_node_cases(tmp_path, ["test_relu"])
        assert child.ask(Case("nodes", "test_relu", "onnxruntime-cpu", folder=str(tmp_path)))["outcome"] == "right"
    finally:
        child.close()
