"""Karmada's objects: what is read of them, when a binding is to be decided, and what is written to it.

Source: Karmada f8fdd02 (1.19), `work.karmada.io/v1alpha2` and `cluster.karmada.io/v1alpha1`.
"""
