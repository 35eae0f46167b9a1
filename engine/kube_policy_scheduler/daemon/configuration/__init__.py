"""Configuration: one YAML file, and flags for what differs between replicas."""
