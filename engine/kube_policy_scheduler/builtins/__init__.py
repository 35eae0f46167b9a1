"""What a policy can use: fields of nodes and pods, and functions. One module per family; see `environment`."""
