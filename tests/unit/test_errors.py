"""What an error's message becomes in one of ours."""

from __future__ import annotations

import pytest

from ipj_edge.errors import first_line, message_lines, telling_line, typed_line


@pytest.mark.parametrize("message", ["", " ", "\n", "\r\n\t\n"])
def test_an_error_without_a_message_yields_the_name_of_its_class(message: str) -> None:
    assert first_line(ValueError(message)) == typed_line(ValueError(message)) == "ValueError"
    assert message_lines(ValueError(message)) == ["ValueError"]


def test_the_first_line_that_says_something_is_taken() -> None:
    error = RuntimeError("\n\n  shapes differ: 3 and 4  \n\nat file.cpp:12\n")
    assert first_line(error) == "shapes differ: 3 and 4"
    assert typed_line(error) == "RuntimeError: shapes differ: 3 and 4"
    assert message_lines(error) == ["shapes differ: 3 and 4", "at file.cpp:12"]


def test_an_error_that_cannot_say_itself_yields_the_name_of_its_class() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            return self.args[0].missing  # type: ignore[no-any-return]

    assert first_line(MuteError(None)) == typed_line(MuteError(None)) == "MuteError"


def test_a_long_line_is_cut_and_shows_that_it_was() -> None:
    assert first_line(ValueError("a" * 1000)) == "a" * 299 + "…"
    assert typed_line(ValueError("a" * 1000), limit=20) == "ValueError: aaaaaaa…"
    assert len(typed_line(ValueError("a" * 1000))) == 300


def test_the_line_of_an_engine_that_says_what_is_wrong_is_told() -> None:
    noise = ("Exception from ", "Check '")
    error = RuntimeError("Exception from core.cpp:1:\nCheck 'a' failed\n- shapes differ\n- while reading the file\n")
    assert telling_line(error, noise) == "shapes differ"
    assert telling_line(error, noise, last=True) == "while reading the file"
    assert telling_line(RuntimeError("Check 'a' failed"), noise) == "Check 'a' failed"
    assert telling_line(RuntimeError(), noise, last=True) == "RuntimeError"
    assert len(telling_line(RuntimeError("a" * 1000), noise)) == 300
