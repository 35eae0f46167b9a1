"""`policyctl doctor`: checks policies against a cluster and its metrics. Pure."""
