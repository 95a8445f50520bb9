"""Structured pruning."""
