"""Benchmarks: scenarios, the runner, results and the headline metric."""

from ipj_edge.benchmark.results import BenchResult, Entry
from ipj_edge.benchmark.runner import BenchOptions, bench, bench_each, result_of
from ipj_edge.benchmark.scenarios import Scenario

__all__ = ["BenchOptions", "BenchResult", "Entry", "Scenario", "bench", "bench_each", "result_of"]
