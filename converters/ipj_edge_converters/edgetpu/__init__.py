"""The Edge TPU: what its compiler maps, and the files it takes."""
