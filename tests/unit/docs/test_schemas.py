"""The schemas in docs are built from the classes: a stale one fails here, and no diff shows one."""

import runpy
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipj_edge.benchmark import BenchResult
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.manifest import Manifest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


BUILT = runpy.run_path(str(DOCS / "schemas.py"))
SCHEMAS: dict[str, Any] = BUILT["SCHEMAS"]


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_the_schema_in_docs_is_the_one_of_the_code(name: str) -> None:
    assert (DOCS / name).read_text() == BUILT["text"](SCHEMAS[name]), "run `make docs`"


def test_every_schema_in_docs_is_built_and_kept_out_of_diffs() -> None:
    assert sorted(path.name for path in DOCS.glob("*.schema.json")) == sorted(SCHEMAS)
    asked = [f"docs/{name}" for name in sorted(SCHEMAS)]
    command = ["git", "check-attr", "diff", "linguist-generated", "--", *asked]
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if told.returncode:
        pytest.skip("this is no git checkout")
    expected = {line for path in asked for line in (f"{path}: diff: unset", f"{path}: linguist-generated: set")}
    assert set(told.stdout.splitlines()) == expected


def test_a_written_manifest_follows_the_schema_and_reads_back_equal(bundle: Path) -> None:
    raw = (bundle / "manifest.json").read_bytes()
    manifest = msgspec.json.decode(raw, type=Manifest, strict=True)
    assert manifest == open_bundle(bundle).manifest
    assert msgspec.json.decode(raw).keys() == set(Manifest.__struct_fields__)


def test_the_result_schema_names_every_field() -> None:
    schema = msgspec.json.schema(BenchResult)
    assert set(schema["$defs"]["BenchResult"]["properties"]) == set(BenchResult.__struct_fields__)
