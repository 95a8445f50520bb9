"""The proof: the candidate is loaded and run in a child, and judged."""
