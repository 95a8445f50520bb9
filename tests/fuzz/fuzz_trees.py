"""Damage to documents that are trees, as JSON and TOML are: values, types, keys and depth; and how they are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Tree = Any
Place = tuple[Any, Any]


class Raw(str):
    """Text that is written into the document as it is, quotes or none."""


ODD_TEXTS = (
    "", " ", ".", "..", "../outside/canary", "/etc/passwd", "/dev/zero", "a\x00b", "\x1b[31mred\x1b[0m", "a\nb", "\r",
    "\u202eabc", "é" * 200, "x" * 300, "x" * 100_000, "a/" * 2000, "C:\\x", "%s%n", "{0}", "$(touch x)", "nan",
    "object",
    "O", "float128", "V8", "datetime64[s]", ">f4", "int4", "float8", "str", "fp64", "manifest.json", "golden.npz",
)  # fmt: skip
ODD_VALUES: tuple[Tree, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 0.0, -0.5, 1e308, 1e-320,
    Raw("1e999"), Raw("-1e999"), Raw("1" * 400), [], {}, [None], [[]], [0], [-1], [2**40, 2**40], {"": 0}, [1e300] * 3,
    *ODD_TEXTS,
)  # fmt: skip


def changed(tree: Tree, rng: Random) -> Tree:
    """Return a copy with one to four changes."""
    copy = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        holder, key = _some_place(copy, rng)
        rng.choice(_CHANGES)(holder, key, rng)
    return copy


def places(tree: Tree) -> Iterator[Place]:
    """Yield every place in a tree: what holds it, and the key or index there."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield tree, key
        yield from places(value)


def written_json(tree: Tree, rng: Random) -> bytes:
    """Return a tree as JSON; sometimes with a doubled key, a lone surrogate, NaN or great depth."""
    text = _json(tree)
    if rng.random() < 0.15 and isinstance(tree, dict) and tree:
        key = rng.choice(list(tree))
        text = text.replace("{", "{" + json.dumps(key) + ": " + _json(rng.choice(ODD_VALUES)) + ", ", 1)
    if rng.random() < 0.1:
        text = _replaced_value(text, rng.choice(("NaN", "-Infinity", '"\\ud800"', deep(rng), '"\\u0000"')), rng)
    return text.encode("utf-8", "surrogatepass")


def written_toml(tree: Tree, rng: Random) -> bytes:
    """Return a tree of tables as TOML; sometimes with a doubled key or great depth."""
    lines: list[str] = []
    _toml_table(tree, "", lines)
    if rng.random() < 0.15 and lines:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    if rng.random() < 0.1:
        odd = (
            "x = " + "[" * 100_000,
            "x = " + "{a=" * 2000,
            "a" + ".a" * 5000 + " = 1",
            "[" + ".".join("a" * 3000) + "]",
        )
        lines.append(rng.choice(odd))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def deep(rng: Random) -> str:
    """Return a JSON value of 100,000 levels, closed or not."""
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
    inner = "1" if opening != "[" else ""
    return opening * 100_000 + (inner + closing * 100_000 if rng.random() < 0.5 else "")


def _some_place(tree: Tree, rng: Random) -> Place:
    """Choose a place; those near the top are as likely as the many below."""
    holder, key = [tree], 0
    while True:
        inner = holder[key]
        if (
            not isinstance(inner, dict | list)
            or not inner
            or (holder is not None and rng.random() < 0.2 and inner is not tree)
        ):
            return holder, key
        holder, key = inner, rng.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))


def _set_odd(holder: Any, key: Any, rng: Random) -> None:
    holder[key] = rng.choice(ODD_VALUES)


def _set_alike(holder: Any, key: Any, rng: Random) -> None:
    """Put an odd value of the same type: it passes the schema."""
    old = holder[key]
    alike = [value for value in ODD_VALUES if type(value) is type(old)]
    holder[key] = rng.choice(alike) if alike else rng.choice(ODD_VALUES)


def _drop(holder: Any, key: Any, _rng: Random) -> None:
    del holder[key]


def _double(holder: Any, key: Any, rng: Random) -> None:
    if isinstance(holder, list):
        holder[key:key] = [json.loads(json.dumps(holder[key]))] * rng.choice((1, 1, 40))
    else:
        holder[f"{key}2"] = holder[key]


def _exchange(holder: Any, key: Any, rng: Random) -> None:
    other = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


def _empty(holder: Any, key: Any, rng: Random) -> None:
    holder[key] = type(holder[key])() if isinstance(holder[key], dict | list | str) else rng.choice(([], {}, ""))


def _rename(holder: Any, key: Any, rng: Random) -> None:
    if isinstance(holder, dict):
        holder[rng.choice(ODD_TEXTS)] = holder.pop(key)
    else:
        _exchange(holder, key, rng)


_CHANGES: tuple[Callable[[Any, Any, Random], None], ...] = (
    *(_set_odd, _set_odd, _set_alike, _set_alike, _set_alike, _drop, _double, _exchange, _empty, _rename),
)


def _json(value: Tree) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _replaced_value(text: str, new: str, rng: Random) -> str:
    """Put a value in place of the text between some colon and the comma or brace behind it."""
    colons = [index for index, letter in enumerate(text) if letter == ":"]
    if not colons:
        return new
    start = rng.choice(colons) + 1
    ends = [end for end in (text.find(",", start), text.find("}", start)) if end >= 0]
    return text[:start] + new + (text[min(ends) :] if ends else "")


def _toml_table(table: Tree, name: str, lines: list[str]) -> None:
    if not isinstance(table, dict):
        lines.append(f"value = {_toml(table)}")
        return
    inner = {key: value for key, value in table.items() if isinstance(value, dict) and value}
    arrays = {key: value for key, value in table.items() if isinstance(value, list) and value and _tables(value)}
    lines += [
        f"{_toml_key(key)} = {_toml(value)}" for key, value in table.items() if key not in inner and key not in arrays
    ]
    for key, value in inner.items():
        lines.append(f"[{name}{_toml_key(key)}]")
        _toml_table(value, f"{name}{_toml_key(key)}.", lines)
    for key, value in arrays.items():
        for each in value:
            lines.append(f"[[{name}{_toml_key(key)}]]")
            _toml_table(each, f"{name}{_toml_key(key)}.", lines)


def _tables(value: Tree) -> bool:
    return all(isinstance(each, dict) for each in value)


def _toml_key(key: object) -> str:
    text = str(key)
    return text if text.replace("_", "").isalnum() and text.isascii() else json.dumps(text)


def _toml(value: Tree) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return '""' if value is None else json.dumps(value, ensure_ascii=False)
