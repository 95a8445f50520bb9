"""The kinds of models that can be converted, one file each."""
