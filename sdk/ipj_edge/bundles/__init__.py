"""The bundle on disk: manifest, files, placement, proof on a device."""
