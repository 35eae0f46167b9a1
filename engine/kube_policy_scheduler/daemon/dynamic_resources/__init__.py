"""Devices that pods claim: what becomes of their claims beside the decisions."""
