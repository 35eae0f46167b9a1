"""One statement to a syntax tree. With `parse_tables` and `parse_errors` the only module that knows Lark."""

from __future__ import annotations

from functools import lru_cache

from lark import Lark
from lark.exceptions import UnexpectedInput

from kube_policy_scheduler.diagnostics import Diagnostic, Source
from kube_policy_scheduler.lang import codes, syntax
from kube_policy_scheduler.lang.reading.layout import Line
from kube_policy_scheduler.lang.reading.lowering import Expressions, Lowering, Statements, lowering
from kube_policy_scheduler.lang.reading.parse_errors import explain, unknown_statement
from kube_policy_scheduler.lang.reading.parse_tables import parser
from kube_policy_scheduler.lang.statements import KEYWORDS
from kube_policy_scheduler.lang.walk import depth

MAX_DEPTH = 100
"""Operators inside one another."""


class _Lower(Statements, Expressions):
    """Every rule of the grammar."""


@lru_cache(maxsize=1)
def grammar() -> Lark:
    """Return the parser, made once per process."""
    return parser(_Lower())


def read(source: Source, line: Line, found: list[Diagnostic]) -> syntax.Statement | None:
    """Return the tree of one statement; None if it cannot be used: `found` then gets what is wrong."""
    word = _first_word(line.text)
    if word not in KEYWORDS:
        found.append(unknown_statement(source, line, word))
        return None
    before = len(found)
    with lowering(Lowering(source, line.start, found)):
        try:
            statement: syntax.Statement = grammar().parse(line.text)  # type: ignore[assignment]
        except UnexpectedInput as error:
            found.append(explain(error, source, line))
            return None
    if len(found) > before:
        return None
    if len(line.text) > MAX_DEPTH and depth(statement) > MAX_DEPTH:  # each operator takes a character
        message = f"more than {MAX_DEPTH} nested operators"
        found.append(codes.TOO_LARGE.at(statement.span, message, help="name parts of it with `let`"))
        return None
    return statement


def _first_word(text: str) -> str:
    end = 0
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return text[:end]
