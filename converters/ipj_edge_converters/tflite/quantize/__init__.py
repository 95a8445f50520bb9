"""int8 of TFLite files: observed ranges and recipes."""
