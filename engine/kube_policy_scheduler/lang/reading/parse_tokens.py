"""The words of a text by the parser itself: which terminal each one is, and which could come next.

For editors: colours need the terminals, completion needs what the grammar allows behind a text that has no end yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
from lark import Lark
from lark.exceptions import UnexpectedInput
from lark.parsers.lalr_interactive_parser import InteractiveParser

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang.reading.layout import MAX_STATEMENT, Line, lay_out
from kube_policy_scheduler.lang.reading.parse_tables import parser

END = "$END"
"""The terminal of the end of a statement."""
_WORD = re.compile(r"([a-z]+)(?:\\b|\(\?=)")
_KEPT_LINES = 8192


class Token(msgspec.Struct, frozen=True):
    """One word or sign of a statement."""

    kind: str
    """The name of its terminal in the grammar."""
    text: str
    start: int
    end: int


@lru_cache(maxsize=1)
def _grammar() -> Lark:
    """Return the parser, which here makes no tree that is used."""
    return parser(None)


@lru_cache(maxsize=1)
def keywords() -> Mapping[str, str]:
    """Return the words of the grammar by the names of their terminals."""
    found = {}
    for terminal in _grammar().terminals:
        match = _WORD.match(terminal.pattern.value)
        if match is not None:
            found[terminal.name] = match[1]
    return MappingProxyType(found)


@lru_cache(maxsize=1)
def signs() -> Mapping[str, str]:
    """Return the operators and other signs of the grammar by the names of their terminals."""
    plain = {t.name: t.pattern.value for t in _grammar().terminals if t.pattern.type == "str"}
    return MappingProxyType(plain)


class Slot(msgspec.Struct, frozen=True):
    """The place behind the beginning of a statement, where a word is to be written."""

    before: tuple[Token, ...]
    """What stands before it."""
    kind: str
    """The terminal that a word there is; "" where only the words of the grammar and signs are possible."""
    accepts: frozenset[str]
    """All terminals that are possible there; empty where what stands before is no beginning of a statement."""


@lru_cache(maxsize=_KEPT_LINES)
def tokens_of(text: str) -> tuple[Token, ...]:
    """Return the words of one statement, up to the place where it stops being one."""
    found: list[Token] = []
    try:
        for token in _grammar().parse_interactive(text[:MAX_STATEMENT]).iter_parse():
            found.append(_token(token))
    except UnexpectedInput:
        pass
    return tuple(found)


def slot_after(text: str) -> Slot:
    """Return what may follow the beginning of a statement.

    A letter is put there: what some words are depends on whether something stands behind them.
    """
    text = text[:MAX_STATEMENT]
    reading: InteractiveParser = _grammar().parse_interactive(f"{text}x")
    found: list[Token] = []
    try:
        for token in reading.lexer_thread.lex(reading.parser_state):  # type: ignore[no-untyped-call]
            if (token.start_pos or 0) >= len(text):
                accepts = frozenset(reading.accepts())  # type: ignore[no-untyped-call]
                return Slot(tuple(found), token.type if token.type in accepts else "", accepts)
            reading.feed_token(token)
            found.append(_token(token))
    except UnexpectedInput as error:
        at = error.pos_in_stream if error.pos_in_stream is not None else -1
        accepts = frozenset(reading.accepts())  # type: ignore[no-untyped-call]
        return Slot(tuple(found), "", accepts if at >= len(text) else frozenset())
    return Slot(tuple(found), "", frozenset())


@lru_cache(maxsize=_KEPT_LINES)
def accepted_after(text: str) -> frozenset[str]:
    """Return the terminals that may follow whole words; empty where these are no beginning of a statement."""
    reading: InteractiveParser = _grammar().parse_interactive(text[:MAX_STATEMENT])
    try:
        for token in reading.lexer_thread.lex(reading.parser_state):  # type: ignore[no-untyped-call]
            reading.feed_token(token)
    except UnexpectedInput:
        return frozenset()
    return frozenset(reading.accepts())  # type: ignore[no-untyped-call]


def _token(token: Any) -> Token:
    start = token.start_pos or 0
    return Token(token.type, str(token), start, start + len(token))


def tokens(source: Source) -> tuple[Token, ...]:
    """Return the words of a file, each at its place in it; of statements with an error, those before it."""
    return tuple(
        Token(token.kind, token.text, line.start + token.start, line.start + token.end)
        for line in lay_out(source).lines
        for token in tokens_of(line.text)
    )


def statement_before(source: Source, offset: int) -> Line | None:
    """Return the statement that is written up to an offset; None inside a comment."""
    cut = Source(source.name, source.text[:offset])
    layout = lay_out(cut)
    if layout.comments and layout.comments[-1].span.end == offset:
        return None
    return layout.last
