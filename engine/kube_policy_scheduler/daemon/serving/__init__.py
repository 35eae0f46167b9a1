"""What the daemon shows over HTTP: probes, metrics, status page, state."""
