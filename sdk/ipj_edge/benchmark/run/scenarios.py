"""What a query is and when it comes: the scenarios of MLPerf Inference that one device by itself can run.

Source of the definitions: Reddi et al., MLPerf Inference Benchmark (arXiv 1911.02549), section 3. ``server`` needs
arrivals from outside and is not one of them.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from ipj_edge import limits
from ipj_edge.bundles.manifest import Manifest
from ipj_edge.errors import ConfigError

ScenarioName = Literal["single-stream", "multi-stream", "offline"]

# MLPerf Inference edge, multi-stream: eight samples a query.
MULTI_STREAM_SAMPLES = 8


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """How queries are issued.

    Attributes:
        name: ``single-stream``: one sample a query, the next when the last is answered; its figure is latency.
            ``multi-stream``: several samples a query, likewise; its figure is the latency of a query.
            ``offline``: all samples are there at once and go in batches; its figure is throughput.
        samples_per_query: Samples of a query; None takes what the scenario and the bundle suggest.
        every_s: Seconds between the starts of two queries, for work that arrives at a pace (a camera, a
            microphone); None issues them back to back. CPU time and joules then include the gaps.
    """

    name: ScenarioName = "single-stream"
    samples_per_query: int | None = None
    every_s: float | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(ScenarioName):
            raise ConfigError(f"unknown scenario '{self.name}': expected one of {', '.join(get_args(ScenarioName))}")
        limits.BATCH.check("the number of samples a query", self.samples_per_query)
        if self.name == "single-stream" and self.samples_per_query not in (None, 1):
            raise ConfigError(
                f"single-stream has one sample a query, got {self.samples_per_query}: name multi-stream or offline"
            )
        limits.PACE_S.check("the pace", self.every_s)
        if self.every_s is not None and self.name == "offline":
            raise ConfigError("offline has no pace: all its samples are there at once")


def samples_per_query(scenario: Scenario, manifest: Manifest) -> int:
    """Return the samples of a query for a bundle: given, one, eight, or the batch the bundle was proven with.

    Raises:
        ConfigError: a query does not fill the bundle's only batch size.
    """
    static = manifest.batch.static or 1
    fixed = bool(manifest.batch.only_size)
    suggested = {"single-stream": static, "multi-stream": static if fixed else max(MULTI_STREAM_SAMPLES, static)}
    chosen = scenario.samples_per_query or suggested.get(scenario.name) or manifest.batch.static or manifest.batch.max
    if chosen % static or (fixed and chosen != static):
        raise ConfigError(f"this bundle takes batches of {static}: {chosen} samples a query do not fill them")
    return chosen
