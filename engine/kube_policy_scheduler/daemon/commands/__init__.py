"""Subcommands of `policy-scheduler`, a module each. They do not schedule."""
