"""Subcommands of `policy-scheduler`, one per module. They do not schedule."""
