"""Kubernetes quantities as numbers, exactly."""
