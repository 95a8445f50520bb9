"""Benchmarks: scenarios, the runner, results and their table."""
