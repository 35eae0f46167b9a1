"""Deterministic simulation of the whole loop: seeded time, network, faults and changes."""
