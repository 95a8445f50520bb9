"""Benchmarks: scenarios, the runner, results and the headline figure."""

from ipj_edge.benchmark.result.schema import BenchResult, Entry
from ipj_edge.benchmark.run.runner import BenchOptions, bench, bench_each, result_of
from ipj_edge.benchmark.run.scenarios import Scenario

__all__ = ["BenchOptions", "BenchResult", "Entry", "Scenario", "bench", "bench_each", "result_of"]
