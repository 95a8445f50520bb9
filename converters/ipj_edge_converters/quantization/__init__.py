"""What every format needs to quantize: ranges from training, operators kept in float, instruction sets."""
