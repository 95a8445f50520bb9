"""Emulated meters that speak the real protocols over a pty, with faults on demand.

For tests of drivers, ours and others': in a thread (`ipj_edge_probes.serial.emulation.pty_host.PtyHost`), or as a
program that prints the port to open::

    python -m ipj_edge_probes.serial.ppk2.emulator --current-a 0.010
"""
