"""Probes that call a vendor's program."""
