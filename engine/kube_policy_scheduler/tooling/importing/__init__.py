"""`policyctl import`: converts a KubeSchedulerConfiguration to policies. Pure."""
