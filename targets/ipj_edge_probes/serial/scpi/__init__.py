"""Instruments that speak SCPI: Yokogawa WT300, Rigol DP800 and others."""
