"""int8 and half precision of ONNX files."""
