"""YAML and JSON that people write: settings, test files, recorded clusters. Every error has its line."""
