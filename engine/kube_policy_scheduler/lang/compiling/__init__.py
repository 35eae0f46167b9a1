"""Typed tree to callables over columns."""
