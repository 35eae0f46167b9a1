"""The command `policyctl`: what an operator does with policies before a cluster sees them."""
