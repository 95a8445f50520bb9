"""For plugin authors: fakes that speak the real formats, and contract checks."""
