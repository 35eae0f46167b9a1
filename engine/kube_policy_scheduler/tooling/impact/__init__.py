"""What a change of policies does to the pods of a cluster: `policyctl impact`. Pure."""
