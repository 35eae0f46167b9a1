"""The daemon as its users run it, against a cluster: embedded by default, a real control plane on request."""
