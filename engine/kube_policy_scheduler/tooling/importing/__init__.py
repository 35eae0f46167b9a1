"""KubeSchedulerConfiguration to policies: `policyctl import`. Pure."""
