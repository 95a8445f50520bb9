"""Distillation: teachers and what a student learns from them."""
