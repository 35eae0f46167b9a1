"""Karmada's own rules: what becomes of a workload whose policy says nothing else.

Source: Karmada f8fdd02 (1.19), package `pkg/scheduler`. Its cases in `tests/conformance` agree.
"""
