"""The canonical text of a policy: same tree, same comments, and formatting it again changes nothing.

The clauses' texts come from `show`; here are lines, empty lines and comments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span, errors
from kube_policy_scheduler.lang import codes, syntax
from kube_policy_scheduler.lang.formatting.comment_places import placed
from kube_policy_scheduler.lang.formatting.line_breaks import grouped
from kube_policy_scheduler.lang.formatting.line_writer import written
from kube_policy_scheduler.lang.formatting.show import formatted_statement
from kube_policy_scheduler.lang.language_versions import NEWEST, Rewriting, upgraded, version_of
from kube_policy_scheduler.lang.reading.layout import MAX_FILE
from kube_policy_scheduler.lang.reading.parse import parse

WIDTH = 100
"""Characters; a longer statement is broken inside brackets and before operators. Comments may be longer."""


class Formatted(msgspec.Struct, frozen=True):
    """The canonical text; it may be the text that was given."""

    text: str
    language: int | None = None
    """The version that the file was upgraded from; None: it was not."""
    rewritings: tuple[Rewriting, ...] = ()
    """The statements that the upgrade wrote differently."""


class Unreadable(msgspec.Struct, frozen=True):
    """The source is not well-formed: there is nothing to format."""

    diagnostics: tuple[Diagnostic, ...]


class Unfaithful(msgspec.Struct, frozen=True):
    """The text that was made says something else: a mistake of ours, and nothing of it may be used."""

    reason: str


FormatResult: TypeAlias = Formatted | Unreadable | Unfaithful


def format_source(source: Source, *, upgrade: bool = False) -> FormatResult:
    """Return the canonical text of a policy file, checked to say the same and to stay as it is.

    upgrade: write it in the newest version of the language.
    """
    file, diagnostics = parse(source)
    if errors(diagnostics):
        return Unreadable(diagnostics)
    language, rewritings = None, tuple[Rewriting, ...]()
    if upgrade and (old := version_of(file)) != NEWEST:
        language, (file, rewritings) = old, upgraded(file)
    text = _text(file)
    if isinstance(text, Unfaithful):
        return text
    if len(text) > MAX_FILE:
        message = f"after formatting, the file would have {len(text):,} characters; the limit is {MAX_FILE:,}"
        return Unreadable((codes.TOO_LARGE.at(Span(source, 0, 0), message, help='join parts with `use "…"`'),))
    again, diagnostics = parse(Source(source.name, text))
    if diagnostics:
        return Unfaithful(f"the result cannot be parsed: {diagnostics[0]}")
    if again != file:
        return Unfaithful("a statement would change")
    if _comments(again) != _comments(file):
        return Unfaithful("a comment would change")
    if _text(again) != text:
        return Unfaithful("formatting the result again would change it")
    return Formatted(text, language, rewritings)


def _comments(file: syntax.File) -> list[str]:
    return sorted(_comment(comment).text for comment in file.comments)


def _comment(comment: syntax.Comment) -> syntax.Comment:
    """Return a comment with a space before its first word; rulers and the like stay as they are."""
    text = comment.text
    return replace(comment, text=f"# {text[1:]}") if text[1:2].isalnum() else comment


class _Block(msgspec.Struct, frozen=True):
    """Lines that belong together."""

    start: int
    end: int
    """Offsets in the source."""
    text: str


def _text(file: syntax.File) -> str | Unfaithful:
    """Return the canonical text of a file."""
    blocks: list[_Block] = []
    for statement, comments in _with_comments(file):
        if statement is None:
            blocks += [_Block(comment.span.start, comment.span.end, comment.text) for comment in comments]
            continue
        block = _statement(statement, comments)
        if isinstance(block, Unfaithful):
            return block
        blocks.append(block)
    out: list[str] = []
    for at, block in enumerate(blocks):
        between = file.source.text[blocks[at - 1].end : block.start] if at else ""
        # with \r alone as the end of a line too
        empty = between.replace("\r\n", "\n").replace("\r", "\n").count("\n") > 1
        out += ["\n" if empty else "", block.text, "\n"]
    return "".join(out)


def _with_comments(file: syntax.File) -> Iterator[tuple[syntax.Statement | None, Sequence[syntax.Comment]]]:
    """Yield statements with the comments inside and at their end, and the comments between them, in order."""
    comments = [_comment(comment) for comment in reversed(file.comments)]
    limits = [statement.span.start for statement in file.statements[1:]] + [len(file.source.text)]
    # files that begin with no statement have one limit too many
    for statement, limit in zip(file.statements, limits, strict=False):
        while comments and comments[-1].span.start < statement.span.start:
            yield None, [comments.pop()]
        own = []
        while comments and comments[-1].span.start < statement.span.end:
            own.append(comments.pop())
        if comments and not comments[-1].own_line and comments[-1].span.start < limit:
            own.append(comments.pop())
        yield statement, own
    yield None, comments[::-1]


def _statement(statement: syntax.Statement, comments: Sequence[syntax.Comment]) -> _Block | Unfaithful:
    span = statement.span
    canonical = formatted_statement(statement)
    again, diagnostics = parse(Source(span.source.name, canonical))
    if diagnostics or again.statements != (statement,):
        return Unfaithful(f"`{canonical}` is not what {span} says")
    group = grouped(canonical, again.statements[0])
    places = placed(comments, source=span.text, start=span.start, canonical=canonical, breaks=list(group.breaks()))
    lines = [comment.text for comment in places.above]
    lines.append(written(group, comments=places.inside, width=WIDTH))
    for at, comment in enumerate(places.behind):
        if at == 0:
            lines[-1] += f"  {comment.text}"
        else:
            lines.append(comment.text)
    end = max(span.end, comments[-1].span.end) if comments else span.end
    return _Block(span.start, end, "\n".join(lines))
