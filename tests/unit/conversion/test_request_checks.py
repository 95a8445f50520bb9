"""A request that would make a bundle that lies, or has no effect, is refused before anything is run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipj_edge.conversion.plan.request import ConvertRequest
from ipj_edge.conversion.plan.request_checks import check_labels, check_request, named_preprocessing, tidied
from ipj_edge.errors import ConfigError
from ipj_edge.values import Preprocessing, TensorSpec

IMAGE = TensorSpec(name="image", shape=("batch", 1, 8, 9), dtype="float32")
LOGITS = TensorSpec(name="logits", shape=("batch", 4), dtype="float32")
SOURCE: Any = SimpleNamespace(inputs=(IMAGE,), outputs=(LOGITS,), name="net", precision="fp32", file="net.onnx")


def _request(**more: Any) -> ConvertRequest:
    return ConvertRequest(**{"source": "net.onnx", "targets": ("tflite-cpu",), "into": Path("out"), **more})


def test_a_target_asked_for_twice_is_made_once() -> None:
    asked = tidied(_request(targets=("b", "a", "b"), precisions=("int8", "fp32", "int8")))
    assert (asked.targets, asked.precisions) == (("b", "a"), ("int8", "fp32"))


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", ".hidden", "nul\0"])
def test_a_name_that_leads_elsewhere_or_hides_the_bundle_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a bundle"):
        check_request(_request(name=name), SOURCE)
    check_request(_request(name="net v1.2 ünï"), SOURCE)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (
            {"size": (8, 8), "channels": "L"},
            r"makes NCHW images of shape \(1, 8, 8\), and input 'image' takes \(N, 1, 8, 9\)",
        ),
        ({"size": (8, 9)}, r"of shape \(3, 8, 9\)"),
        ({"size": (8, 9), "channels": "L", "layout": "NHWC"}, r"makes NHWC images of shape \(8, 9, 1\)"),
        ({"size": (8, 9), "channels": "L", "mean": (0.1, 0.2)}, "mean has 2 values for 1 channels"),
        ({"size": (8, 9), "channels": "L", "std": (0.0,)}, "cannot be 0"),
    ],
)
def test_preprocessing_that_does_not_make_the_input_is_refused(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        named_preprocessing(_request(preprocessing={"": Preprocessing(**rule)}), SOURCE)


def test_preprocessing_that_makes_the_input_is_taken() -> None:
    rule = Preprocessing(size=(8, 9), channels="L", mean=(0.1,), std=(0.5,))
    assert named_preprocessing(_request(preprocessing={"": rule}), SOURCE) == {"image": rule}


def test_more_labels_than_scores_are_refused() -> None:
    check_labels((), (LOGITS,))
    check_labels(("a", "b", "c", "d"), (LOGITS,))
    with pytest.raises(
        ConfigError, match="--labels has 5 names, and no output has as many scores: 'logits' is 4 a sample"
    ):
        check_labels(("a", "b", "c", "d", "e"), (LOGITS,))


def test_an_input_that_is_handed_through_needs_a_name_of_its_own() -> None:
    source = SimpleNamespace(**{**vars(SOURCE), "outputs": (LOGITS, IMAGE)})
    with pytest.raises(ConfigError, match=r"'image' is the name of an input and of an output.*logits, image"):
        check_request(_request(), source)  # type: ignore[arg-type]
