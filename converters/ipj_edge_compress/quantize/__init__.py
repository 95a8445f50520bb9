"""Quantization-aware training, and how much each layer suffers."""
