"""Policies: rules that score, thresholds, exits.json."""
