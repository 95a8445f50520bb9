"""OpenVINO's intermediate representation: what writes, quantizes, cuts and reads it."""
