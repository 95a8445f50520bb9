"""Commands that make, prove, run and show bundles."""
