"""Whether a policy set and a cluster fit together: `policyctl doctor`. Pure."""
