"""The demonstration: an embedded cluster, a real scheduler process, and policies edited while it runs."""
