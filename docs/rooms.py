"""Write the built part of architecture.md from the import contracts and the rooms' docstrings: ``make docs``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- built by `make docs`: do not edit -->\n\n", "\n<!-- end of the built part -->\n"


def contracts() -> list[dict[str, Any]]:
    """Return the contracts of import-linter, in their order in pyproject.toml."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


def packages() -> dict[str, Path]:
    """Return the folder of every package of ours under its name, in the order of the distribution's list."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["packages"]
    return {Path(each).name: ROOT / each for each in named}


def rooms() -> Iterator[tuple[str, str]]:
    """Yield the path of every room and what its docstring's first sentence says of it."""
    for folder in packages().values():
        for made in sorted(folder.rglob("__init__.py"), key=lambda path: path.parent):
            said = ast.get_docstring(ast.parse(made.read_text())) or ""
            yield made.parent.relative_to(ROOT).as_posix(), " ".join(said.partition("\n\n")[0].split())


def built() -> str:
    """Return the built part: a block of rows for every layers contract, the other contracts, the rooms."""
    lines: list[str] = []
    layered = [each for each in contracts() if each["type"] == "layers"]
    for contract in layered:
        inside = contract.get("containers", [""])[0]
        rows = [row.replace(" | ", " · ").replace("ipj_edge.", "") for row in contract["layers"]]
        lines += ["", f"### {contract['name']}" + (f" (`{inside}`)" if inside else ""), "", "```", *rows, "```"]
    others = [each["name"] for each in contracts() if each["type"] != "layers"]
    lines += ["", "### Besides the layers", "", *(f"- {name}." for name in others)]
    lines += ["", "## Rooms", "", "| room | holds |", "|---|---|"]
    lines += [f"| [`{path}`](../{path}) | {says} |" for path, says in rooms()]
    return "\n".join(lines[1:]) + "\n"


def page(old: str) -> str:
    """Return the page's text with its built part made anew."""
    before, _, rest = old.partition(BEGIN)
    return before + BEGIN + built() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
