"""One name means one thing: no two public classes or types of ours are called the same."""

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES: dict[str, Path] = runpy.run_path(str(ROOT / "docs" / "rooms.py"))["packages"]()

# Each module says with it what numbers its arrays hold: the word stays short, and no module takes another's.
LOCAL = {"Array"}


def is_type_name(name: str) -> bool:
    return name.isidentifier() and name[0].isupper() and not name.isupper()


def declared() -> Iterator[tuple[str, str, str]]:
    """Yield (name, what it means, where): a class means itself, a type alias what it stands for."""
    for folder in PACKAGES.values():
        for path in sorted(folder.rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, place, place
                elif isinstance(node, ast.Assign) and is_type_name(name := ast.unparse(node.targets[0])):
                    yield name, ast.unparse(node.value), place


def test_no_two_classes_or_types_share_a_name() -> None:
    found: dict[str, dict[str, str]] = {}
    for name, meaning, place in declared():
        found.setdefault(name, {})[meaning] = place
    assert len(found) > 300
    shared = {name: sorted(places.values()) for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in LOCAL} == {}
    assert set(shared) >= LOCAL, "an exception that is no longer needed"
