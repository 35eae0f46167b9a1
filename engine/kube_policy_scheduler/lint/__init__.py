"""Finds likely mistakes in policies that compile. Rules know the language, but no cluster."""
