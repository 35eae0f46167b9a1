"""Schedulers as processes, ours and kube-scheduler, on a control plane: how fast they bind, and how soon."""
