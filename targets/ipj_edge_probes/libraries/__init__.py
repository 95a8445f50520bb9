"""Probes that call a vendor's library."""
