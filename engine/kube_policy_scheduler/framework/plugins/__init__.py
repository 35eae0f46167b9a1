"""kube-scheduler's own rules, one module per plugin, over columns. Semantics of Kubernetes 1.36."""
