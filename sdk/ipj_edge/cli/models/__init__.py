"""Commands that work on models: early exits and compression."""
