"""HTTP: the servers of all programs, their limits and certificates, and the extenders that are asked."""
