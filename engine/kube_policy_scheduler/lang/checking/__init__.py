"""Syntax tree to typed tree: names, types, units, missing values. Reports every error and continues."""
