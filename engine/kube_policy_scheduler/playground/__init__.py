"""`policyctl playground`: policies tried on a cluster while they are written. `session` answers, `server` carries."""
