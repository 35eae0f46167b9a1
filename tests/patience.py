"""How long a test waits for what surely comes: beside other work it comes late, and a failure then says nothing."""

from __future__ import annotations

PATIENCE_SECONDS = 60.0
"""More than anything takes on a machine that does ten other things, and less than `pytest-timeout` gives a test."""
