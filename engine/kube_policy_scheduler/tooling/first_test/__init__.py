"""`policyctl test --init`: writes a first test file, with cases in which each clause passes and fails."""
