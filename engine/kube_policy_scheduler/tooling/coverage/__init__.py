"""Coverage of a test run: which clauses decided, and which results their conditions had."""
