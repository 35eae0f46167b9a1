"""The command `policyctl`: check, test and explain policies before and while a cluster uses them."""
