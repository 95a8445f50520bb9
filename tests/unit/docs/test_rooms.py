"""The rooms of the code: the page says what the contracts say, and no room outgrows itself."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILT = runpy.run_path(str(ROOT / "docs" / "rooms.py"))
PAGE: str = BUILT["PAGE"].read_text()
PACKAGES: dict[str, Path] = BUILT["packages"]()
CONTRACTS = BUILT["contracts"]()
OURS = sorted([*PACKAGES.values(), *(ROOT / name for name in ("benchmarks", "docs", "examples", "tests"))])


def folders_of(top: Path) -> list[Path]:
    return sorted({made.parent for made in top.rglob("*.py")})


def test_the_page_shows_the_layers_and_rooms_that_the_code_has() -> None:
    assert BUILT["BEGIN"] in PAGE
    assert BUILT["page"](PAGE) == PAGE, "run `make docs`"


def test_the_table_of_folders_names_every_package() -> None:
    table = PAGE.partition("## Folders")[2].partition("\n## ")[0]
    named = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(named) == sorted(folder.relative_to(ROOT).as_posix() for folder in PACKAGES.values())


@pytest.mark.parametrize("top", OURS, ids=lambda top: top.name)
def test_no_folder_holds_more_than_fifteen_modules(top: Path) -> None:
    folders = folders_of(top)
    assert folders
    crowded = {}
    for folder in folders:
        modules = [made.name for made in folder.glob("*.py") if made.name not in ("__init__.py", "conftest.py")]
        if len(modules) > 15:
            crowded[folder.relative_to(ROOT).as_posix()] = len(modules)
    assert not crowded


@pytest.mark.parametrize("name", PACKAGES)
def test_every_room_of_a_package_says_what_it_holds(name: str) -> None:
    rooms = dict(BUILT["rooms"]())
    for folder in folders_of(PACKAGES[name]):
        assert rooms.get(folder.relative_to(ROOT).as_posix()), f"{folder}/__init__.py has no docstring"


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_has_layers_and_no_import_circles(name: str) -> None:
    layered = [each for each in CONTRACTS if each["type"] == "layers"]
    assert any(
        row.startswith(f"{name}.") or name in each.get("containers", []) for each in layered for row in each["layers"]
    )
    (circles,) = [each for each in CONTRACTS if each["type"] == "acyclic_siblings"]
    assert name in circles["ancestors"]
    assert "depth" not in circles
    assert "ignore_imports" not in circles
