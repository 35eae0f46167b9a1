"""Several replicas: leader election, sharding of nodes, and pods that are handed over."""
