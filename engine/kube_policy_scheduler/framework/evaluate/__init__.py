"""Filters and scores over all nodes: the plain path, what is kept for the next pod, and why nodes are rejected."""
