"""Why a pod is where it is, or is nowhere: `policyctl why`. Pure."""
