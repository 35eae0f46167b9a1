"""Text to syntax tree: each statement separately, so that all errors of a file come at once.

What reads a text is imported with the first one, Lark with the first statement that is not kept: who gets trees from
elsewhere, as a daemon does from the checker's process, never needs either.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kube_policy_scheduler.diagnostics import Diagnostic, Label, Source, Span, in_order
from kube_policy_scheduler.lang import codes, expressions, syntax
from kube_policy_scheduler.lang.statements import BEHIND_A_NAME, KEYWORDS
from kube_policy_scheduler.lang.walk import moved

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.reading.layout import Line

MAX_STATEMENTS = 1_000
"""Of a policy, with those of used files; what is compared in pairs stays a matter of milliseconds."""
_MAX_ERRORS = 50
_DEFINES = r"(?m)^[ \t]*(?:(?:let|def|metric)[ \t]+(\w+)|(?:\w+[ \t]+)?(\w+)[ \t]*:?=(?!=))"
"""A line that defines a name, also in the spelling of other languages: `x = 3`, `const x = 3`, `let x := 3`."""


class KeptStatements:
    """Statements without errors by their text, for a text that is almost the one before it.

    What a text does not have is not kept for the next one, so nothing grows with time.
    """

    def __init__(self, before: KeptStatements | None = None) -> None:
        self.known: dict[str, syntax.Statement] = {}
        self._before = before.known if before is not None else {}

    def forget_before(self) -> None:
        """Forget what the text does not have."""
        self._before = {}

    def find(self, source: Source, line: Line) -> syntax.Statement | None:
        """Return the statement of a line, with its place in the source."""
        found = self.known.get(line.text) or self._before.get(line.text)
        if found is None:
            return None
        self.known[line.text] = found
        here: syntax.Statement = moved(found, source, line.start)
        return here

    def keep(self, line: Line, statement: syntax.Statement) -> None:
        """Keep the statement of a line; of the source, nothing but the line."""
        self.known[line.text] = moved(statement, Source("", line.text), -line.start)


def parse(source: Source, kept: KeptStatements | None = None) -> tuple[syntax.File, tuple[Diagnostic, ...]]:
    """Return the tree of everything that can be read, and what is wrong with the rest.

    kept: statements that need not be read again, and to which those of the source are added.
    """
    from kube_policy_scheduler.lang.reading.layout import lay_out
    from kube_policy_scheduler.lang.reading.parse_statement import read

    layout = lay_out(source)
    found = list(layout.diagnostics)
    statements: list[syntax.Statement] = []
    for line in layout.lines:
        if len(statements) == MAX_STATEMENTS:
            message = f"more than {MAX_STATEMENTS:,} statements: the rest of the file is skipped"
            advice = "split it into policies for different pods"
            found.append(codes.TOO_LARGE.at(Span(source, line.start, line.start + 1), message, help=advice))
            break
        statement = kept.find(source, line) if kept is not None else None
        if statement is None:
            statement = read(source, line, found)
            if kept is not None and statement is not None:
                kept.keep(line, statement)
        if isinstance(statement, syntax.Language) and statements:
            found.append(_late_language(statement, statements[0]))
        elif statement is not None:
            statements.append(statement)
        if len(found) > _MAX_ERRORS:
            break
    unread = _unread_names(source, statements) if found else frozenset()
    return syntax.File(source, tuple(statements), layout.comments, unread), _first(in_order(found))


def parse_expression(source: Source) -> tuple[expressions.Expr | None, tuple[Diagnostic, ...]]:
    """Return the tree of a text that is one expression, and what is wrong with it."""
    from kube_policy_scheduler.lang.reading.layout import Line, lay_out
    from kube_policy_scheduler.lang.reading.parse_statement import read
    from kube_policy_scheduler.lang.reading.place import EXPRESSION

    layout = lay_out(source)
    found = list(layout.diagnostics)
    if found:
        return None, in_order(found)
    if not layout.lines:
        message, advice = "there is no expression", "for example: node.free.cpu - 2"
        return None, (codes.UNEXPECTED.at(Span(source, 0, 0), message, help=advice),)
    line = layout.lines[0]
    statement = re.match(_BEGINS_STATEMENT, line.text)
    if len(layout.lines) > 1 or statement is not None:
        at = layout.lines[1].start if len(layout.lines) > 1 else line.start
        message, advice = "only one expression is expected here", "remove the other lines"
        if statement is not None:
            message, advice = f"`{statement[1]}` begins a statement, not an expression", "write the expression alone"
        return None, (codes.UNEXPECTED.at(Span(source, at, at + 1), message, help=advice),)
    read_line = Line(line.start - len(EXPRESSION), EXPRESSION + line.text)
    tree = read(source, read_line, found)
    if isinstance(tree, syntax.Let) and tree.low is not None:
        message, advice = "an expression has no range", "remove it: only a `let` in a policy has one"
        found.append(codes.UNEXPECTED.at(tree.low.span, message, help=advice))
    return (tree.value if isinstance(tree, syntax.Let) and not found else None), in_order(found)


_BEGINS_STATEMENT = rf"({'|'.join(sorted(KEYWORDS))})\s+(?!(?:{'|'.join((*BEHIND_A_NAME, 'not'))})\b)[\w\"]"


def _late_language(statement: syntax.Language, first: syntax.Statement) -> Diagnostic:
    """Return the diagnostic of a `language` that is not the first statement."""
    if isinstance(first, syntax.Language):
        label = Label(first.span, "the first one")
        message = "`language` appears twice"
        return codes.REPEATED.at(statement.span, message, help="keep one of them", labels=[label])
    message = "`language` must be the first statement of the file"
    label = Label(first.span, "the first statement")
    return codes.LANGUAGE_LATE.at(statement.span, message, help="move the line to the top", labels=[label])


def _unread_names(source: Source, statements: list[syntax.Statement]) -> frozenset[str]:
    """Return the names that the text seems to define and no statement defines."""
    defined = {s.name for s in statements if isinstance(s, syntax.Let | syntax.Def | syntax.Metric)}
    return frozenset(match[1] or match[2] for match in re.finditer(_DEFINES, source.text)) - defined


def _first(found: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Return as many diagnostics as people read, and one that reports the skipped rest."""
    if len(found) <= _MAX_ERRORS:
        return found
    last = found[_MAX_ERRORS].span
    line, column = last.source.position(last.start)
    end = last.start + len(last.source.line(line)) - column + 1
    message = f"more than {_MAX_ERRORS} errors: the rest of the file is skipped"
    many = codes.TOO_MANY.at(Span(last.source, last.start, max(last.end, end)), message, help="is this a policy?")
    return (*found[: _MAX_ERRORS + 1], many)
