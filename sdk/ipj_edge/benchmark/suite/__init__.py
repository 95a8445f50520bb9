"""Sweeps of many cells, run in turns and resumed."""
