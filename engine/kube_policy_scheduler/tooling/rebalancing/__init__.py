"""`policyctl rebalance`: which pods to move, by the rules that place them. Pure."""
