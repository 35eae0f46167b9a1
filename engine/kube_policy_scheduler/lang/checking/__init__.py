"""Syntax tree to typed tree: names, types, units, missing values; reports, and goes on."""
