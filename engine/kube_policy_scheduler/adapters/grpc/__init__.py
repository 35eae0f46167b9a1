"""Karmada's estimator protocol: how many more replicas a member cluster has room for, asked and answered by gRPC."""
