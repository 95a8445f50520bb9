"""Meters on a serial port: driver, decoder and emulator of each side by side."""
