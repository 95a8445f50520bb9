"""What docs/ci.md says of limits and figures is what the code does."""

import re
from pathlib import Path

from ipj_edge.benchmark.compare.comparison import MAX_DROP, MAX_REGRESSION
from ipj_edge.benchmark.result.figures import FIGURES

PAGE = (Path(__file__).parents[3] / "docs" / "ci.md").read_text()


def test_the_limits_on_the_page_are_those_of_the_code():
    said = dict(re.findall(r"^\| `([a-z0-9_.]+)`(?: \(offline\))? \| ([0-9.]+ ?(?:%|pp)) \|", PAGE, re.MULTILINE))
    limits = {name: f"{100 * limit:g} %" for name, limit in MAX_REGRESSION.items()}
    limits |= {name: f"{100 * limit:g}pp" for name, limit in MAX_DROP.items()}
    assert said == limits


def test_every_figure_the_page_names_exists():
    named = set(re.findall(r"`((?:latency_s|cpu_s|joules|throughput|load|first|energy)[a-z0-9_.]*)`", PAGE))
    assert named
    assert named <= set(FIGURES)
