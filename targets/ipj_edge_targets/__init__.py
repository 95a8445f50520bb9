"""The targets that come with ipj-edge, one file each."""
