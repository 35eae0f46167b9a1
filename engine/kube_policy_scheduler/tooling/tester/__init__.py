"""`policyctl test`: cases in YAML, each decided by the scheduling cycle and compared with its expectation."""
