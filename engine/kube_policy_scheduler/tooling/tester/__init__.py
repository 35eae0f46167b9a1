"""`policyctl test`: cases in YAML, each decided by the one scheduling cycle and compared with what was expected."""
