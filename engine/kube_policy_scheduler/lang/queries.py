"""What the language knows of PromQL queries: where they may be used, and how large they may be. Knows no Prometheus."""

from __future__ import annotations

import re

QUERY_FUNCTION = "promql"
"""The builtin whose first argument is a query: `metric NAME = promql("…")`."""
MAX_CHARACTERS = 2_000
MAX_OPERATORS = 100
"""Parsers of PromQL nest as deep as their input does, end the process if that is deep, and take time and memory with
the square of the depth: 100 levels are 1 ms and 1 MB, 500 are 30 ms and 40 MB."""
_TEXT = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`'
_OPERATOR = r"(?i)[-+*/%^(\[{]|\b(?:and|or|unless|atan2)\b"


def size_problem(query: str) -> str | None:
    """Return why a query is too large to be looked at, None if it is not; what to do follows a semicolon."""
    advice = "define a recording rule in Prometheus, and query its result"
    if len(query) > MAX_CHARACTERS:
        return f"the query has more than {MAX_CHARACTERS:,} characters; {advice}"
    operators = len(re.findall(_OPERATOR, re.sub(_TEXT, "", query)))
    if operators > MAX_OPERATORS:
        return f"the query has more than {MAX_OPERATORS} operators and brackets; {advice}"
    return None
