"""The scheduling cycle and its plugins. Pure; the clock and the cluster come in as arguments."""
