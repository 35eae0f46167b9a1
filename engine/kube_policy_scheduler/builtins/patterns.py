"""Regular expressions that can't hang: RE2, which takes time in proportion to the text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]  # it has no stubs

_MAX_LENGTH = 1000
_MAX_MEMORY = 1 << 20
"""Bytes that one compiled expression may take; repeated repetitions are refused beyond it."""


@lru_cache(maxsize=1024)
def pattern(text: str) -> Any:
    """Compile a regular expression.

    Raises:
        ValueError: it does not compile, or is too large.
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"a regular expression of more than {_MAX_LENGTH} characters; use several")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"the regular expression does not compile: {reason}; the syntax is RE2's") from error
