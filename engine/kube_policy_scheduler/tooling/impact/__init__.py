"""`policyctl impact`: shows what a policy change would do to the pods of a cluster. Pure."""
