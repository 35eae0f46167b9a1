"""Everything that talks to the world: API server, Prometheus, files. The core never imports this."""
