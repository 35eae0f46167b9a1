"""Tests of `policyctl playground`."""
