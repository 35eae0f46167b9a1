"""`make demo`: an embedded cluster, a real scheduler process, and policies that are edited while it runs."""
