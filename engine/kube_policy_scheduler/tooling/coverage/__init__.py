"""How much of its policies a test run decides with: clauses, and the answers of every condition in them."""
