"""Likely mistakes in policies that do compile. Rules know the language, never a cluster."""
