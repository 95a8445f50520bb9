"""One options value travels from the command line to the converter; what a converter passes over is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from ipj_edge.cli.bundles.convert import _request, command
from ipj_edge.conversion.plan.abilities import check_abilities, for_precision
from ipj_edge.conversion.plan.request import take_options
from ipj_edge.errors import ConfigError, TargetUnavailableError
from ipj_edge.values import ConversionOptions

SOURCE: Any = SimpleNamespace(file="net.onnx", precision="fp32")
PLAIN: Any = SimpleNamespace(name="plain")


class WithEffort(ConversionOptions, frozen=True, kw_only=True):
    """The options of tomorrow: one field more."""

    quantize_effort: int = 0


def _parsed(*arguments: str) -> dict[str, Any]:
    context = command.make_context("convert", ["net.onnx", "--target", "t", "-o", "out", *arguments])
    return {name: value for name, value in context.params.items() if name != "json_path"}


def test_every_option_given_on_the_command_line_arrives_in_the_one_value() -> None:
    asked = _request(
        **_parsed(
            *("--quantize", "static", "--keep-float", "Conv*", "--provider", "cuda", "--min-mapped", "90%"),
            *("--half-io", "--isa", "avx2", "--split-at", "a,b", "--stage-precision", "fp32,int8"),
        )
    )
    assert asked.options == ConversionOptions(
        scheme="static", keep_float=("Conv*",), providers=("cuda",), min_mapped=0.9, half_io=True, isa="avx2",
        split_at=("a", "b"), stage_precisions=("fp32", "int8"),
    )  # fmt: skip


def test_nothing_given_is_the_defaults() -> None:
    assert _request(**_parsed()).options == ConversionOptions()


def test_every_field_but_trained_ranges_is_an_option_of_the_command_line() -> None:
    parameters = {parameter.name for parameter in command.params if isinstance(parameter, click.Option)}
    assert set(ConversionOptions.__struct_fields__) - parameters == {"ranges"}


def test_options_are_taken_by_name_and_the_rest_is_left() -> None:
    given = {"isa": "avx2", "name": "net", "into": Path("out")}
    assert take_options(given) == ConversionOptions(isa="avx2")
    assert given == {"name": "net", "into": Path("out")}


@pytest.mark.parametrize(
    ("options", "precision", "says"),
    [
        (ConversionOptions(scheme="dynamic"), "int8", "'plain' has no dynamic int8"),
        (ConversionOptions(keep_float=("*",)), "int8", "cannot keep single operators in float"),
        (ConversionOptions(keep_float=("*",)), "fp16", "cannot keep single operators in float"),
        (ConversionOptions(providers=("cuda",)), "fp32", "knows no execution provider cuda, only none"),
        (ConversionOptions(min_mapped=0.5), "int8", "maps no operators to an accelerator"),
        (ConversionOptions(half_io=True), "fp32", "float16 inputs and outputs"),
        (WithEffort(quantize_effort=2), "int8", "'plain' does not heed --quantize-effort"),
    ],
)
def test_a_wish_that_a_converter_would_pass_over_is_refused(
    options: ConversionOptions, precision: Any, says: str
) -> None:
    with pytest.raises(TargetUnavailableError, match=says):
        check_abilities(PLAIN, options, SOURCE, precision)


def test_a_converter_that_names_a_new_option_is_given_it() -> None:
    able: Any = SimpleNamespace(name="able", heeds=("quantize_effort",))
    options = WithEffort(quantize_effort=2)
    check_abilities(able, options, SOURCE, "int8")
    assert for_precision(options, "int8") == options


@pytest.mark.parametrize("options", [ConversionOptions(scheme="static"), ConversionOptions(keep_float=("Conv*",))])
def test_a_quantized_source_keeps_its_scales_whatever_is_asked(options: ConversionOptions) -> None:
    able: Any = SimpleNamespace(name="able", schemes=("static", "dynamic"))
    with pytest.raises(ConfigError, match="is quantized already"):
        check_abilities(able, options, SimpleNamespace(file="net.onnx", precision="int8"), "int8")  # type: ignore[arg-type]


def test_options_that_mean_nothing_at_a_precision_are_left_at_their_defaults() -> None:
    asked = ConversionOptions(scheme="dynamic", keep_float=("*",), half_io=True, isa="avx2", split_at=("a", "b"))
    always = ConversionOptions(isa="avx2", split_at=("a", "b"))
    assert for_precision(asked, "fp32") == always
    assert for_precision(asked, "bf16").keep_float == ("*",)
    assert for_precision(asked, "fp16").half_io
    assert for_precision(asked, "int8").scheme == "dynamic"
    assert not for_precision(asked, "int8").half_io
