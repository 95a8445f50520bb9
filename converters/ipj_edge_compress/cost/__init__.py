"""What a model costs, and what compressing it cost."""
