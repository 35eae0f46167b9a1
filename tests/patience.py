"""How long a test waits for what surely comes: beside other work it comes late, and a failure then says nothing."""

from __future__ import annotations

PATIENCE = 90.0
"""Seconds; half of what `pytest-timeout` gives a test."""
