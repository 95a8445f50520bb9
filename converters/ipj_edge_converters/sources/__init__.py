"""What the sources of every format share."""
