"""What a policy may name: fields of nodes and pods, and functions. One family a module; see `environment`."""
