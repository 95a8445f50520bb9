"""What doctor looks for."""
