"""HTTP server of the daemon: probes, metrics, status page, state dump."""
