"""`policyctl tune`: better numbers for a policy, from traces, with evidence. Pure: the search itself is not here."""
