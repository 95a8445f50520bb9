"""TFLite: what writes, cuts, reads and counts .tflite files."""
