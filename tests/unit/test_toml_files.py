"""TOML files: the name, the line and the nearest known key of what is wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ipj_edge.errors import ConfigError
from ipj_edge.toml_files import MOST_BYTES, read_toml


class Small(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="small"):
    size: int = 1
    names: tuple[str, ...] = ()


class Large(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="large"):
    limits: dict[str, float] = {}


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    small: Small | None = None
    step: tuple[Small | Large, ...] = ()


def read(tmp_path: Path, text: str | bytes) -> Whole:
    (tmp_path / "x.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_toml(tmp_path / "x.toml", "list").to(Whole)


def test_a_file_becomes_its_type(tmp_path: Path) -> None:
    text = 'name = "a"\r\n[small]\nsize = 2\n[[step]]\ndo = "large"\n[step.limits]\nany = 1.5\n'
    assert read(tmp_path, text) == Whole(name="a", small=Small(size=2), step=(Large(limits={"any": 1.5}),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nnaem = 1\n", r"x\.toml, line 2: unknown key 'naem' \(did you mean 'name'\?\); known: name, small, step"),
        ("[small]\n# a\nsise = 1\n", r"line 3 \[small\]: unknown key 'sise' \(did you mean 'size'"),
        ("small.sise = 1\n", r"line 1 \[small\]: unknown key 'sise'"),
        ("small = { sise = 1 }\n", r"line 1 \[small\]: unknown key 'sise'"),
        (
            '[[step]]\ndo = "small"\n[[step]]\ndo = "large"\nsize = 1',
            "line 5 step 2: unknown key 'size'; known: do, limits",
        ),
        ('[[step]]\ndo = "smal"\n', r"line 2 step 1: do = 'smal' \(did you mean 'small'\?\); known: small, large"),
        ("[[step]]\nsize = 1\n", "line 1 step 1: do = None; known: small, large"),
        ("\nname = 1\n", "line 2: name: Expected `str`, got `int`"),
        ('[[step]]\ndo = "small"\nnames = ["a", 1]', "line 3 step 1: names: Expected `str`, got `int`"),
        ('[[step]]\ndo = "large"\nlimits = { a = "b" }', "line 3 step 1: limits: Expected `float`, got `str`"),
        ('name = """\n[small]\nsise = 1\n"""\n[small]\nsise = 1', r"line 6 \[small\]: unknown key 'sise'"),
        ("[small\n", r"cannot read the list .*x\.toml: .*line 1"),
        (b"name = '\xff'", r"cannot read the list .*x\.toml: .*utf-8"),
        ("name = " + "[" * 5000, "it is nested too deep"),
        ("name = " + "9" * 5000, "cannot read the list"),
        ("#" * (MOST_BYTES + 1), f"longer than {MOST_BYTES} bytes"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        read(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_a_missing_file_a_folder_and_an_endless_one_are_refused(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "none.toml", "No such file"),
        (tmp_path, "directory"),
        (Path("/dev/zero"), "longer"),
    ):
        with pytest.raises(ConfigError, match=f"cannot read the list .*{said}"):
            read_toml(path, "list")
