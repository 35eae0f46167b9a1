"""Rows to train a model on: what its inputs were at each decision, and what came of it."""
