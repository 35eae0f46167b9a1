"""What `policyctl import` makes of kube-scheduler's configurations."""
