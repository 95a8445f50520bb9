from pathlib import Path

import pytest

from ipj_edge.cli.options import parse as _parse
from ipj_edge.errors import ConfigError


def test_an_input_is_parsed_with_dtype_and_range() -> None:
    spec = _parse.tensor_spec("ids:1x128:int64:0..30521")
    assert (spec.name, spec.shape, spec.dtype, spec.value_range) == ("ids", (1, 128), "int64", (0.0, 30521.0))
    assert spec.batch_axis == 0


def test_an_empty_shape_is_a_scalar_without_a_batch_axis() -> None:
    spec = _parse.tensor_spec("rate::int64:8000..16000")
    assert spec.shape == ()
    assert spec.batch_axis is None


def test_a_name_may_have_colons_of_its_own() -> None:
    spec = _parse.tensor_spec("serving_default_x:0:1x6:float32:-1..1")
    assert (spec.name, spec.shape, spec.value_range) == ("serving_default_x:0", (1, 6), (-1.0, 1.0))
    assert _parse.tensor_spec("x:0:1x6").name == "x:0"
    assert _parse.output_names(("Identity:0:logits", "Identity_1:0")) == (
        ("Identity:0", "Identity_1:0"),
        {"Identity:0": "logits"},
    )


def test_scalar_is_a_shape_as_messages_write_it() -> None:
    assert _parse.tensor_spec("gain:scalar") == _parse.tensor_spec("gain:")


@pytest.mark.parametrize(
    "text", ["x", "image", "x:0x2", "x:1x2:nope", "x:1x2:int64:9..1", ":1x2", "x:1x2:int8:0..1:more"]
)
def test_what_is_no_input_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match="--input"):
        _parse.tensor_spec(text)


def test_outputs_have_names_and_meanings() -> None:
    names, meanings = _parse.output_names(("scores:logits", "boxes"))
    assert names == ("scores", "boxes")
    assert meanings == {"scores": "logits"}
    with pytest.raises(ConfigError, match="probabilities"):
        _parse.output_names(("scores:guesses",))


def test_percentages_carry_their_unit() -> None:
    assert _parse.drop("0.5pp") == pytest.approx(0.005)
    assert _parse.drop(None) is None
    assert _parse.percent("5%") == pytest.approx(0.05)
    for text in ("5", "5pp", "0%", "x%", "1.2.3%", ".%"):
        with pytest.raises(ConfigError, match="5%"):
            _parse.percent(text)


def test_preprocessing_names_an_unknown_key_and_the_known(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("size = [8, 8]\nsise = 3\n")
    known = r"p\.toml, line 2: unknown key 'sise' \(did you mean 'size'\?\); known: .*size"
    with pytest.raises(ConfigError, match=known):
        _parse.preprocessing(str(tmp_path / "p.toml"))
    (tmp_path / "p.toml").write_text('[image]\nsize = [8, 8]\nchannels = "CMYK"\n')
    with pytest.raises(ConfigError, match=r"p\.toml, line 3 \[image\]: .*CMYK"):
        _parse.preprocessing(str(tmp_path / "p.toml"))
    (tmp_path / "p.toml").write_text("size = [8, 8]\n")
    assert set(_parse.preprocessing(str(tmp_path / "p.toml"))) == {""}


def test_labels_are_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("one\n\n two words \n")
    assert _parse.labels(str(tmp_path / "l.txt")) == ("one", "two words")
    (tmp_path / "l.txt").write_text("\n")
    with pytest.raises(ConfigError, match="holds no labels"):
        _parse.labels(str(tmp_path / "l.txt"))
    with pytest.raises(ConfigError, match="cannot read labels"):
        _parse.labels(str(tmp_path / "none.txt"))
