"""The canonical text of a policy: same tree, same comments, and formatting it again changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from engine.diagnostics import Diagnostic, Source, errors
from engine.lang import syntax
from engine.lang.parse import parse
from engine.lang.show import statement_lines

WIDTH = 100
"""Longer statements are broken before `and`, `or`, `if`, `else` and the like."""


class FormatError(Exception):
    """The formatter would have changed what a policy says: a mistake of ours, and nothing may be written."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A statement or a comment, as it will be written."""

    first_line: int
    last_line: int
    lines: list[str]


def format_source(source: Source) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """Return the canonical text, or None and the errors where the source can't be read.

    Raises:
        FormatError: the result would not say the same; nothing of it should be used.
    """
    file, diagnostics = parse(source)
    if errors(diagnostics):
        return None, diagnostics
    text = format_file(file)
    _verify(file, text)
    return text, diagnostics


def format_file(file: syntax.File) -> str:
    """Return the canonical text of a file."""
    items = sorted(_items(file), key=lambda item: item.first_line)
    lines: list[str] = []
    last = None
    for item in items:
        if last is not None and item.first_line > last + 1:
            lines.append("")
        lines.extend(item.lines)
        last = max(last or 0, item.last_line)
    return "\n".join(lines) + "\n" if lines else ""


def _items(file: syntax.File) -> list[_Item]:
    source = file.source
    comments = list(file.comments)
    items: list[_Item] = []
    for statement in file.statements:
        first, _ = source.position(statement.span.start)
        last, _ = source.position(max(statement.span.start, statement.span.end - 1))
        inside = [c for c in comments if statement.span.start <= c.span.start < statement.span.end]
        after = [
            c
            for c in comments
            if c.span.start >= statement.span.end and not c.own_line and source.position(c.span.start)[0] == last
        ]
        comments = [c for c in comments if c not in inside and c not in after]
        lines = [_comment(comment) for comment in inside] + statement_lines(statement, width=WIDTH)
        if after:
            lines[-1] += "  " + _comment(after[0])
        items.append(_Item(first, last, lines))
    for comment in comments:
        line, _ = source.position(comment.span.start)
        items.append(_Item(line, line, [_comment(comment)]))
    return items


def _comment(comment: syntax.Comment) -> str:
    text = comment.text[1:].strip()
    return f"# {text}" if text and not text.startswith("!") else f"#{text}"


def _verify(file: syntax.File, text: str) -> None:
    again, diagnostics = parse(Source(file.source.name, text))
    if errors(diagnostics) or again != file:
        raise FormatError(f"formatting {file.source.name} would change what it says; please report this")
    before = sorted(_comment(comment) for comment in file.comments)
    if sorted(_comment(comment) for comment in again.comments) != before:
        raise FormatError(f"formatting {file.source.name} would lose a comment; please report this")
    if format_file(again) != text:
        raise FormatError(f"formatting {file.source.name} twice gives two results; please report this")
