"""What goes wrong in a cluster, on purpose; `make faults` takes longer over it than the default run."""
