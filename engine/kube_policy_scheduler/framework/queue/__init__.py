"""The scheduling queue: which pod is decided next, and which event wakes which rejected pod."""
