"""Devices of nodes: what drivers publish, what claims hold, and NUMA nodes."""
