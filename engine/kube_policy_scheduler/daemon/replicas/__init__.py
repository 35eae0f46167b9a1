"""Several replicas: who leads, who owns which node, and pods that change hands."""
