"""Cutting a model into stages: the graph, the plan, the precisions. No file format is known here."""
