"""Syntax tree to canonical text, comments kept."""
