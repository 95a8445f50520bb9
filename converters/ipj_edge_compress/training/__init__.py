"""Training: batches, losses, plans, the loop and its checkpoints."""
