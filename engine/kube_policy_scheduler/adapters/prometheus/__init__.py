"""Prometheus: queries out, readings in."""
