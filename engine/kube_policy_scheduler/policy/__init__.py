"""Compiled policies as plugins of the framework, and which policy governs a pod."""
