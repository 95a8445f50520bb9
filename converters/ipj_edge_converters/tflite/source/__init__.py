"""A .tflite file as a source, run in a child process."""
