"""The power probes that come with ipj-edge, one file each."""
