"""Observability: metrics, events, decision log, traces."""
