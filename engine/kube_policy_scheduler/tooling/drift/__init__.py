"""Pods that are where they would not be put any more: `policyctl drift`. Pure."""
