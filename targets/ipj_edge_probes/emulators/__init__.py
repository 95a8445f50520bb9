"""Emulated meters that speak the real protocols over a pty, with faults on demand.

For tests of drivers, ours and others': in a thread (`ipj_edge_probes.emulators.pty_host.PtyHost`), or as a
program that prints the port to open::

    python -m ipj_edge_probes.emulators.ppk2 --current-a 0.010
"""
