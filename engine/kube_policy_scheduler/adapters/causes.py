"""What is behind an error of an HTTP library: the operating system's or the TLS library's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those it wraps, as arguments, reason, cause or context."""
    pending: list[Any] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        pending += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
