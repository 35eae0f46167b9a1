"""One decision as a policy test, with nothing in it that does not matter. Pure."""
