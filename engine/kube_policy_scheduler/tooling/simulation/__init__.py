"""`policyctl simulate`: a stream of pods through the real scheduling cycle in virtual time. Pure."""
