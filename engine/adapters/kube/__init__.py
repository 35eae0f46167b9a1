"""How the scheduler talks to a Kubernetes API server. Knows the API; knows nothing of nodes' merits."""
