"""The result: its schema, files, figures and tables."""
