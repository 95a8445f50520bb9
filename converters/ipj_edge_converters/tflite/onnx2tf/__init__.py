"""ONNX to TFLite through the program onnx2tf, out of process."""
