"""What is to be built: request, sources, inputs, calibration, reference answers."""
