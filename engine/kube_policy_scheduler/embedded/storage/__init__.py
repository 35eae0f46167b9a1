"""Versioned objects, and lists and watches of them."""
