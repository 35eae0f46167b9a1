"""`policyctl capture`: one decision as the smallest policy test that repeats it. Pure."""
