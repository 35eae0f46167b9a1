"""`policyctl why`: explains why a pod is pending, or why it got its node. Pure."""
