"""Meters that print one line a sample."""
