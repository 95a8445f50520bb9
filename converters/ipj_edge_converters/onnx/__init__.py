"""ONNX: what writes, cuts, reads and counts .onnx files."""
