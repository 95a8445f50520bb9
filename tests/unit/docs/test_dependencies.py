"""The page of dependencies says what pyproject.toml and the installed packages say; the bill of materials is whole."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILT = runpy.run_path(str(ROOT / "docs" / "dependencies.py"))
# Words by which packages name a licence in their metadata, in one spelling.
SPELLINGS = {"Apache": "Apache", "BSD": "BSD", "MIT": "MIT", "MPL": "MPL", "Mozilla": "MPL"}


def kinds(text: str) -> set[str]:
    return {kind for word, kind in SPELLINGS.items() if word in text}


def test_every_direct_dependency_has_a_row_and_no_row_is_left_over():
    assert set(BUILT["direct"]()) == set(BUILT["FACTS"])


def test_the_page_is_what_the_script_writes():
    assert BUILT["PAGE"].read_text() == BUILT["page"](), "run `make docs`"


@pytest.mark.parametrize("name", sorted(BUILT["FACTS"]))
def test_the_licence_is_what_the_package_says(name):
    said = BUILT["licence"](name)
    if not said:
        pytest.skip(f"{name} is not installed, or states no licence in its metadata")
    assert kinds(BUILT["FACTS"][name].licence) & kinds(said), said


def test_no_installed_package_of_the_tested_set_is_under_the_gpl():
    stated = {each["name"]: each.get("licenses") for each in BUILT["components"]()}
    assert any(stated.values())
    strict = {
        name: said for name, said in stated.items() if "GPL" in str(said).replace("LGPL", "") and "OR" not in str(said)
    }
    assert strict == {}


def test_the_bill_of_materials_has_every_package_of_the_tested_set():
    bill = BUILT["bill"]()
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    assert (bill["bomFormat"], len(bill["components"])) == ("CycloneDX", len(lines))
    assert len({each["bom-ref"] for each in bill["components"]}) == len(lines)
    torch = next(each for each in bill["components"] if each["name"] == "torch")
    assert torch["purl"].startswith("pkg:pypi/torch@2.")
