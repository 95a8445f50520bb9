import importlib.util
from pathlib import Path

import msgspec
import pytest

from ipj_edge.benchmark import BenchResult
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.manifest import Manifest

DOCS = Path(__file__).parents[3] / "docs"


def _schemas():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("schemas", DOCS / "schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["manifest.schema.json", "result.schema.json"])
def test_the_schema_in_docs_is_the_one_of_the_code(name: str) -> None:
    schemas = _schemas()
    assert (DOCS / name).read_text() == schemas.text(schemas.SCHEMAS[name]), "run `make schemas`"


def test_a_written_manifest_follows_the_schema_and_reads_back_equal(bundle: Path) -> None:
    raw = (bundle / "manifest.json").read_bytes()
    manifest = msgspec.json.decode(raw, type=Manifest, strict=True)
    assert manifest == open_bundle(bundle).manifest
    assert msgspec.json.decode(raw).keys() == set(Manifest.__struct_fields__)


def test_the_result_schema_names_every_field() -> None:
    schema = msgspec.json.schema(BenchResult)
    assert set(schema["$defs"]["BenchResult"]["properties"]) == set(BenchResult.__struct_fields__)
