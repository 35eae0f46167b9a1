"""The ways in which a request to an HTTP extender fails, for its callers. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Callable

Observe = Callable[[str, str, str, float], None]
"""Called for each request: extender, verb, result (`ok`, `timeout` or `error`), seconds."""


class ExtenderError(Exception):
    """An extender gave no usable answer. The text is short, and contains no secrets."""
