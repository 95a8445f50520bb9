"""Tuning of early exits on a bundle: prices, thresholds, exits.json."""
