"""The scheduler process: connects the adapters with the framework, and keeps running."""
