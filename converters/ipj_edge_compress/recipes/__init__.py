"""A whole recipe: its file, its steps, the run folder it resumes from, what it delivers."""
