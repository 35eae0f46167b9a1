"""`policyctl test --mutate`: makes small changes to a policy, and runs its tests to see if they notice."""
