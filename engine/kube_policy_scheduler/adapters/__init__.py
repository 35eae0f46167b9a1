"""All I/O: API server, Prometheus, files, HTTP. The pure packages never import this."""
