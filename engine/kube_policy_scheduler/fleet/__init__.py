"""Placement over several clusters: which clusters run a workload, and how many replicas each of them gets.

Rows are clusters instead of nodes. Pure: what is read from the API server and written to it is done elsewhere.
"""
