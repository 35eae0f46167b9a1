"""Simulated kubelets: nodes that are ready, pods that run."""
