"""torch: factories and .pt2 programs as sources, and their export."""
