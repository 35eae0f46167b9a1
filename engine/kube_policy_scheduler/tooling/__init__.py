"""Tools that need no cluster: test, why, impact, simulate, capture, doctor, conformance. Pure."""
