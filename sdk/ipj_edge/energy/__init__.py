"""Joules: power probes read over windows, with provenance, boundary and an error bar."""
