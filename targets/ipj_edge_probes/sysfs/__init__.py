"""Probes that read files of the kernel."""
