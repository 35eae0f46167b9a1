"""Regular expressions that others write, in policies, tests and queries: RE2, so none takes longer than its text.

Python's `re` is for patterns of our own; a stranger's pattern could make it search for ever.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Protocol

MEMORY_BYTES = 8 << 20
"""What one compiled expression may take, as RE2 has it; repeated repetitions are refused beyond it."""


class PatternError(ValueError):
    """A text is not a regular expression of RE2, or one that is too large; it says why."""


class Pattern(Protocol):
    """A compiled expression. Its time is linear in the length of the text."""

    def search(self, text: str, /) -> Any:
        """Return the first match anywhere in a text, or None."""
        ...

    def fullmatch(self, text: str, /) -> Any:
        """Return the match of a whole text, or None."""
        ...

    def finditer(self, text: str, /) -> Any:
        """Return an iterator over all matches in a text."""
        ...


@lru_cache(maxsize=32)  # of as much as `memory_bytes` each
def compiled(text: str, *, memory_bytes: int = MEMORY_BYTES, dot_is_newline: bool = False) -> Pattern:
    """Compile a regular expression.

    Args:
        text: in the syntax of RE2.
        memory_bytes: what it may take.
        dot_is_newline: whether `.` also stands for the end of a line.

    Raises:
        PatternError: it does not compile, or is too large.
    """
    import re2  # type: ignore[import-untyped]  # it has no stubs, and a start needs none

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_bytes
    options.dot_nl = dot_is_newline
    try:
        pattern: Pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else error
        raise PatternError(str(reason)) from error
    except UnicodeEncodeError as error:
        raise PatternError("it holds half a character") from error
    return pattern


def label_pattern(text: str) -> Pattern:
    """Compile the expression of a matcher (`=~`) as Prometheus does; a label matches it with its whole value.

    https://prometheus.io/docs/prometheus/latest/querying/basics/#regular-expressions; since 3.0 `.` matches a newline.

    Raises:
        PatternError: the expression does not compile: Prometheus refuses the query.
    """
    return compiled(text, dot_is_newline=True)


_GLOB = r"[A-Za-z0-9._*?/-]*[*?][A-Za-z0-9._*?/-]*"
_REPEATED_LETTER = r"[A-Za-z0-9_/-][*]"


def is_glob(text: str) -> bool:
    """Return whether a text has wildcards, and otherwise only characters of names."""
    return re.fullmatch(_GLOB, text) is not None


def was_meant_as_glob(pattern: str) -> bool:
    """Return whether a regular expression is probably a glob: it repeats a letter, a digit or a dash, as in `web-*`.

    `https?` and `web-.*` are what regular expressions look like.
    """
    return (
        is_glob(pattern) and ".*" not in pattern and (pattern[0] in "*?" or bool(re.search(_REPEATED_LETTER, pattern)))
    )


def of_glob(glob: str) -> str:
    """Return the regular expression that matches what a glob does."""
    return re.escape(glob).replace("\\*", ".*").replace("\\?", ".").replace("\\-", "-").replace("\\/", "/")
