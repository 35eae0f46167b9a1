"""Reads YAML and JSON files that people write: settings, tests, recorded clusters. Every error has its line."""
