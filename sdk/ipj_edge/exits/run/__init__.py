"""The gate and the drift check at run time."""
