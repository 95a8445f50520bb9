"""TOML files of ours, read in one place: an unknown key is named with its line and the nearest known one.

A file is data of the user's: it may be too long, nested too deep or no text at all, and each is one clear line.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ipj_edge.errors import ConfigError, first_line

MOST_BYTES = 1_000_000

T = TypeVar("T")
Keys = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(#.*)?")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PLACE = re.compile(r" - at `(?:key in )?\$([^`]*)`$")


class TomlFile(NamedTuple):
    """A TOML file that was read.

    Attributes:
        path: The file.
        text: Its text.
        table: Its content.
    """

    path: Path
    text: str
    table: dict[str, Any]

    def to(self, kind: type[T], *at: str) -> T:
        """Return the content, or the table at some keys, as a msgspec type.

        Raises:
            ConfigError: a key that the type does not have, or a value it does not take; names the line.
        """
        import msgspec.inspect

        value: Any = reduce(lambda table, key: table[key], at, self.table)
        self._refuse_strangers(value, msgspec.inspect.type_info(kind), at)
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, OverflowError, ConfigError) as error:
            said, place = first_line(error), _PLACE.search(str(error))
            keys = (*at, *(_keys_of(place[1]) if place else ()))
            raise self.error(_last_name(keys) + _PLACE.sub("", said), *keys) from error

    def error(self, what: str, *keys: str | int) -> ConfigError:
        """Return an error about the value at some keys, with the file's name and the line."""
        places = _lines(self.text)
        lines = [places[keys[:count]] for count in range(len(keys), 0, -1) if keys[:count] in places]
        shown = f", line {lines[0]}" if lines else ""
        told = f"{_named(keys)}: {what}".replace("\n", "\\n")
        return ConfigError(f"{self.path}{shown}{told}")

    def _refuse_strangers(self, value: Any, kind: Any, keys: Keys) -> None:
        """Refuse keys that a type does not have, at any depth of it."""
        from msgspec import inspect

        if isinstance(kind, inspect.UnionType):
            kind = self._member(value, [one for one in kind.types if isinstance(one, inspect.StructType)], keys)
        if isinstance(kind, inspect.StructType) and isinstance(value, dict):
            self._refuse_in(value, kind, keys)
        elif isinstance(kind, inspect.VarTupleType | inspect.ListType) and isinstance(value, list):
            for index, item in enumerate(value):
                self._refuse_strangers(item, kind.item_type, (*keys, index))
        elif isinstance(kind, inspect.DictType) and isinstance(value, dict):
            for key, item in value.items():
                self._refuse_strangers(item, kind.value_type, (*keys, key))

    def _refuse_in(self, table: Mapping[str, Any], kind: Any, keys: Keys) -> None:
        fields = {field.encode_name: field.type for field in kind.fields}
        known = ((kind.tag_field,) if kind.tag_field else ()) + tuple(fields)
        for key, value in table.items():
            if key not in known:
                raise self.error(f"unknown key '{key}'{nearest(key, known)}; known: {', '.join(known)}", *keys, key)
            if key in fields:
                self._refuse_strangers(value, fields[key], (*keys, key))

    def _member(self, value: Any, structs: list[Any], keys: Keys) -> Any:
        """Return the struct of a union that a table is meant for: its only one, or the one its tag names."""
        if len(structs) < 2 or not isinstance(value, dict):
            return structs[0] if structs else None
        tagged = {str(one.tag): one for one in structs}
        field = structs[0].tag_field
        tag = str(value.get(field))
        if tag not in tagged:
            raise self.error(
                f"{field} = {value.get(field)!r}{nearest(tag, tagged)}; known: {', '.join(tagged)}", *keys, field
            )
        return tagged[tag]


def read_toml(path: Path, what: str) -> TomlFile:
    """Read a TOML file.

    Args:
        path: The file.
        what: What it is called in errors, e.g. ``suite``.

    Raises:
        ConfigError: it cannot be read, is no TOML, longer than 1 MB or nested too deep.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"cannot read the {what} {path}: it is longer than {MOST_BYTES} bytes")
        text = content.decode().replace("\r\n", "\n")
        return TomlFile(path=path, text=text, table=tomllib.loads(text))
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror}") from error
    except ValueError as error:  # no UTF-8, no TOML, a number of thousands of digits
        raise ConfigError(f"cannot read the {what} {path}: {first_line(error)}") from error
    except RecursionError as error:
        raise ConfigError(f"cannot read the {what} {path}: it is nested too deep") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question about the nearest known name, to put behind an unknown one; empty where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean '{near[0]}'?)" if near else ""


def _named(keys: Keys) -> str:
    """Return the table that keys lead to, as TOML writes it: `` [data.vary]``, `` step 2``."""
    item = f" {keys[0]} {keys[1] + 1}" if len(keys) > 1 and isinstance(keys[1], int) else ""
    names = [key for key in keys[1 if item else 0 :] if isinstance(key, str)]
    return item + (f" [{'.'.join(names[:-1])}]" if names[1:] else "")


def _last_name(keys: Keys) -> str:
    """Return the name of the value that keys lead to; an item of an array of tables has none of its own."""
    names = [key for key in keys if isinstance(key, str)]
    is_item = len(keys) == 2 and isinstance(keys[1], int)
    return f"{names[-1]}: " if names and not is_item else ""


def _keys_of(place: str) -> Keys:
    """Return the keys in a msgspec path: ``.step[0].epochs``."""
    parts = re.findall(r"\.([\w-]+)|\[(\d+)\]", place)
    return tuple(int(index) if index else name for name, index in parts)


def _lines(text: str) -> dict[Keys, int]:
    """Return the line of every table and key that has one of its own; keys of inline tables have none."""
    found: dict[Keys, int] = {}
    table: Keys = ()
    counts: dict[Keys, int] = {}
    within = ""  # the quotes of a string of several lines, while in one
    for number, line in enumerate(text.split("\n"), start=1):
        if within:
            within = "" if line.count(within) % 2 else within
            continue
        if header := _HEADER.fullmatch(line):
            table = _table(_parts(header[2]), header[1] == "[[", counts)
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault((*table, *_parts(key[1])), number)
        within = next((quotes for quotes in ('"""', "'''") if line.count(quotes) % 2), "")
    return found


def _table(names: tuple[str, ...], array: bool, counts: dict[Keys, int]) -> Keys:
    keys: Keys = ()
    for name in names[:-1]:
        keys = (*keys, name, *((counts[(*keys, name)],) if (*keys, name) in counts else ()))
    keys = (*keys, names[-1])
    if array:
        counts[keys] = counts.get(keys, -1) + 1
        return (*keys, counts[keys])
    return keys


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in re.findall(r"""[\w-]+|"[^"]*"|'[^']*'""", dotted))
