"""Running a bundle: the model, its chain of stages, parity, golden inputs, verification."""
