"""Benchmarks: scenarios, the runner, results and the headline metric."""

from ipj_edge.benchmark.results import BenchResult, Entry
from ipj_edge.benchmark.runner import BenchOptions, bench, bench_each, result_of

__all__ = ["BenchOptions", "BenchResult", "Entry", "bench", "bench_each", "result_of"]
