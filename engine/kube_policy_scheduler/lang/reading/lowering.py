"""What the reductions of one statement share: where it stands, and where its problems go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from lark import Token

from kube_policy_scheduler.diagnostics import Diagnostic, Fix, Source, Span
from kube_policy_scheduler.lang import codes_syntax as codes
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.lang.reading.literals import string


@dataclass(slots=True)
class Lowering:
    """What one statement is lowered with."""

    source: Source
    start: int
    """Where the statement begins in the source."""
    found: list[Diagnostic]

    def span(self, first: Any, last: Any) -> Span:
        """Return the range from one token or tree to another."""
        start = self.start + (first.start_pos or 0) if isinstance(first, Token) else first.span.start
        end = self.start + (last.end_pos or 0) if isinstance(last, Token) else last.span.end
        return Span(self.source, start, end)

    def report(self, code: Code, span: Span, message: str, *, help: str = "", fix: Fix | None = None) -> None:  # noqa: A002
        """Report a problem of this statement."""
        self.found.append(code.at(span, message, help=help, fix=fix))


_CURRENT: ContextVar[Lowering] = ContextVar("lowering")
"""Lark binds its callbacks to one object for good; what they work on differs by statement and by thread."""


@contextmanager
def lowering(current: Lowering) -> Iterator[None]:
    """Lower what is parsed inside with `current`."""
    token = _CURRENT.set(current)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@dataclass(frozen=True, slots=True)
class Part:
    """A suffix of a statement, before it is known whether the statement takes it."""

    word: str
    value: Any
    span: Span


def current() -> Lowering:
    """Return what the statement at hand is lowered with."""
    return _CURRENT.get()


def whole(items: list[Any]) -> Span:
    """Return the range of all the items."""
    return current().span(items[0], items[-1])


def at(token: Any) -> Span:
    """Return the range of one token or tree."""
    return current().span(token, token)


def string_value(token: Token) -> str:
    """Return what a string literal says."""
    value, bad = string(str(token))
    if bad is not None:
        start, lowering = at(token).start + bad, current()
        shown = str(token)[bad : bad + 2]
        advice = f"write `\\\\{shown[1:]}` for a backslash, or remove it"
        span = Span(lowering.source, start, start + 2)
        lowering.report(codes.ESCAPE, span, f"`{shown}` has no meaning in a string", help=advice)
    return value


def text_or_word(token: Token) -> str:
    """Return what a string literal or a bare word says."""
    return string_value(token) if token.type == "STRING" else str(token)
