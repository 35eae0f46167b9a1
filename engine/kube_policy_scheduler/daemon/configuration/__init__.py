"""What an operator can set: one YAML file, flags for what differs by pod."""
