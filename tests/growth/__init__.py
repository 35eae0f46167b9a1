"""What one tenant writes must not stop the others: everything that can be written is grown, and every step counted."""
