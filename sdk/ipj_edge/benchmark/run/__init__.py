"""One run of a benchmark: queries, the timed loop, windows, the entry of the result."""
