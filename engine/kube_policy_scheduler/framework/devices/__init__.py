"""Dynamic resource allocation: which devices a pod's claims get on each node."""
