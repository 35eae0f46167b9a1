"""Where a statement stops being one, and what is possible there, in words."""

from __future__ import annotations

import re

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Fix, Source, Span
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.reading.layout import Line
from kube_policy_scheduler.lang.statements import BY_KEYWORD, CLAUSES, EXAMPLES
from kube_policy_scheduler.wording import listed

EXPRESSION = "let __expression__ = "
"""What an expression without a statement is read behind: the grammar has only statements."""
WORD = re.compile(r"[A-Za-z_]\w*|\d+|.")
"""A word, the digits of a number, or one other character."""
WORD_OF_KEY = re.compile(r" *([\w./-]+)")
"""The key of a label."""
_OPERANDS = frozenset({"NUMBER", "STRING", "LPAR", "LSQB", "TRUE", "FALSE", "POD"})
_OPERATORS = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "EQ", "NE", "LT", "LE", "GT", "GE", "AND", "OR"})
_QUIET = _OPERANDS | _OPERATORS | {
    "DOT", "OTHERWISE", "IN", "NOT", "IS", "MATCHES", "NOTIN", "MISSING", "LABEL", "NAME", "$END", "FOR", "WHERE",
}  # fmt: skip
"""Terminals not worth naming one by one."""
_NAMED = {
    "RPAR": "`)`", "RSQB": "`]`", "COMMA": "`,`", "LPAR": "`(`", "ASSIGN": "`=`", "STRING": 'a text in quotes',
    "OBJECT_NAME": "a name", "LABEL_KEY": "the key of a label", "LABEL_VALUE": "the value of a label",
    "MEMBER": "a name", "NAME": "a name",
}  # fmt: skip
_SUFFIXES = frozenset(clause.split()[0].upper() for clause in CLAUSES) - {
    "EVERY", "STALE", "DEFAULT", "BY", "FOR", "AFTER",
}  # fmt: skip
_LAST_WORD = re.compile(r"([A-Za-z_]\w*)\s*$")

NEAR = 120
"""Characters before a place that are searched for what stands at their end."""


class Place(msgspec.Struct, frozen=True):
    """Where a statement stops being one."""

    source: Source
    line: Line
    at: int
    """Offset in the line."""
    word: str
    """What is there."""
    accepts: frozenset[str]
    """Terminals that are possible there."""

    @property
    def what(self) -> str:
        """Return what is read, in words."""
        return f"this `{self.keyword}`" if self.keyword else "the expression"

    @property
    def keyword(self) -> str:
        """Return the word that the statement begins with; "" for an expression without a statement."""
        if self.line.text.startswith(EXPRESSION):
            return ""
        found = WORD.match(self.line.text)
        return found[0] if found else ""

    @property
    def before(self) -> str:
        """Return the statement up to the place."""
        return self.line.text[: self.at]

    @property
    def near(self) -> str:
        """Return the last characters before the place: what is looked for at their end is not looked for in more."""
        return self.line.text[max(0, self.at - NEAR) : self.at]

    @property
    def last(self) -> str:
        """Return the word before the place; "" if something else is there."""
        found = _LAST_WORD.search(self.near)
        return found[1] if found else ""

    @property
    def span(self) -> Span:
        """Return the range of the word at the place."""
        return self.range(self.at, self.at + len(self.word))

    def range(self, start: int, end: int) -> Span:
        """Return the range between two offsets of the line."""
        return Span(self.source, self.line.start + start, self.line.start + end)

    def example(self) -> str:
        """Return how the statement is written, as help."""
        if not self.keyword:
            return "for example: node.free.cpu - 2"
        return f"for example: {EXAMPLES[self.keyword]}" if self.keyword in EXAMPLES else ""

    def unexpected(self, advice: str, *, fix: Fix | None = None) -> Diagnostic:
        """Return the diagnostic of a word that is not allowed here."""
        message = f"unexpected `{self.word}`: {self.expected()}"
        return codes.UNEXPECTED.at(self.span, message, help=advice, fix=fix)

    def possible(self) -> frozenset[str]:
        """Return the terminals that are possible here; of suffixes, those that the statement takes."""
        accepts = self.accepts if self.keyword else self.accepts - {"FROM"}
        if not ("THEN" in accepts or re.search(r"\bthen\b", self.before)):
            statement = BY_KEYWORD.get(self.keyword)
            taken = (*statement.clauses, *statement.joins, *statement.words) if statement is not None else ()
            accepts -= _SUFFIXES - {word.upper() for clause in taken for word in clause.split()} - {"IF"}
        return accepts

    def expected(self) -> str:
        """Return what is possible here, in words."""
        accepts = self.possible()
        parts = []
        quiet = _QUIET
        if "NUMBER" in accepts:
            parts.append("a value")
            quiet |= {"IF"}
        elif accepts >= {"AND", "PLUS"}:
            parts.append("an operator")
        elif "AND" in accepts:
            parts.append("`and`, `or`")
        named = sorted(accepts - quiet if parts else accepts - {"$END"})
        parts += [_NAMED.get(name, f"`{name.lower().replace('_', ' ')}`") for name in named][:8]
        if "$END" in accepts:
            parts.append("the end of the line")
        if not parts:
            return "nothing is allowed here"
        return "expected " + listed(parts, "or")
