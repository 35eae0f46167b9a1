"""Volumes and their claims: what is attached where."""
