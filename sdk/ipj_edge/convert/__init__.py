"""Conversion: plan, calibrate, convert, prove in a child process, gate, publish."""
