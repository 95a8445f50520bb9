"""The power probes that come with ipj-edge, by how they are reached."""
