"""Write the JSON Schemas of the manifest and of results from the classes that define them: ``make docs``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ipj_edge.benchmark import BenchResult
from ipj_edge.bundles.manifest import Manifest
from ipj_edge.exits import ExitsRecord

SCHEMAS: dict[str, Any] = {
    "manifest.schema.json": Manifest,
    "result.schema.json": BenchResult,
    "exits.schema.json": ExitsRecord,
}


def text(kind: Any) -> str:
    """Return the JSON Schema of a class, indented."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
    return msgspec.json.format(msgspec.json.encode(schema, order="deterministic"), indent=2).decode() + "\n"


if __name__ == "__main__":
    for name, kind in SCHEMAS.items():
        (Path(__file__).parent / name).write_text(text(kind))
