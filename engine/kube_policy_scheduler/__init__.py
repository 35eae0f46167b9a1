"""A Kubernetes scheduler driven by policy files."""
