"""A first test file for a policy: cases that show each of its clauses where it holds and where it does not."""
