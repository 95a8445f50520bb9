"""An .onnx file as a source: opened, cleaned, its shapes and outputs described."""
