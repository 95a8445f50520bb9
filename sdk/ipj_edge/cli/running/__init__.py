"""Steps of commands that are longer than one call."""
