"""`policyctl snapshot`: a live cluster as a fixture, with only what scheduling reads; can hide names. Pure."""
