"""What can be said about policies and decisions without a cluster: tests, explanations, conformance. Pure."""
