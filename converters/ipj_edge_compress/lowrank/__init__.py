"""Low-rank factorisation."""
