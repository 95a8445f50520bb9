"""What hypothesis thinks of as text, JSON and bytes, given to the readers of small files in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipj_edge.benchmark.report.tuned import is_tuned, read_tuned
from ipj_edge.benchmark.result.files import read_result
from ipj_edge.cli.options.parse import labels, preprocessing
from ipj_edge.energy.cost import load_tariff
from ipj_edge.errors import IpjEdgeError
from ipj_edge.samples.preprocess import read_image
from ipj_edge_probes.replay import load_trace

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
RESULTS = st.fixed_dictionaries({"version": VALUES, "results": VALUES}, optional={"record": VALUES, "started": VALUES})
LINES = st.lists(st.lists(st.text(max_size=6) | st.floats().map(str), max_size=3).map(",".join), max_size=5)
CONTENTS = st.one_of(
    st.binary(max_size=300),
    st.text().map(lambda text: text.encode("utf-8", "surrogatepass")),
    (VALUES | RESULTS).map(lambda tree: json.dumps(tree).encode()),
    LINES.map(lambda lines: "\n".join(["time_s,a_w", *lines]).encode("utf-8", "surrogatepass")),
    st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), VALUES, max_size=4).map(
        lambda table: "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items()).encode()
    ),
)
READERS: dict[str, Callable[[Path], object]] = {
    "result": read_result,
    "tuned": read_tuned,
    "looks tuned": is_tuned,
    "labels": lambda path: labels(str(path)),
    "preprocess": lambda path: preprocessing(str(path)),
    "tariff": load_tariff,
    "trace": load_trace,
    "picture": read_image,
}


@pytest.mark.parametrize("name", READERS)
@given(content=CONTENTS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_is_read_or_refused_in_one_line(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    said = _refusal(READERS[name], path)
    assert said.isprintable()


def _refusal(read: Callable[[Path], object], path: Path) -> str:
    """Return what a file is refused with; nothing where it is read."""
    try:
        read(path)
    except IpjEdgeError as error:
        return str(error) or "nothing was said"
    return ""
