"""Which lines belong to one statement, where strings and comments are. Of the grammar it knows the
table of statements.

A statement is one line; it goes on over a line end inside brackets, where the line ends with an operator, and
where the next line begins with one. A line inside brackets that begins like a statement ends the one before it:
that bracket was forgotten.
"""

from __future__ import annotations

import re
from bisect import bisect_left

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Source, Span
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.lang.reading.lookalikes import lookalike, lookalikes_in
from kube_policy_scheduler.lang.statements import BEHIND_A_NAME, GO_ON_BEFORE, GO_ON_BEHIND, STATEMENTS
from kube_policy_scheduler.lang.syntax import Comment

MAX_FILE = 256 * 1024
"""Characters; about 8,000 lines. A ConfigMap holds at most 1 MiB in all."""
MAX_STATEMENT = 16 * 1024
MAX_BRACKETS = 40
"""Brackets inside one another."""

_OPENINGS = "|".join((each.opening or each.keyword).replace(" ", r"[ \t]+") for each in STATEMENTS)
_BEHIND_A_NAME = "|".join((*BEHIND_A_NAME, r"not[ \t]+in"))
_BEGINS = re.compile(rf"[ \t]*(?:{_OPENINGS})(?:[ \t]+(?!(?:{_BEHIND_A_NAME})\b)[\w\".(\[-]|[ \t]*$)", re.MULTILINE)
"""Keywords are no reserved words: where an operator follows, it is a name."""
_AS_FUNCTIONS = "|".join(each.keyword for each in STATEMENTS if each.as_function)
_BEGINS_AS_FUNCTION = re.compile(rf"[ \t]*(?:{_AS_FUNCTIONS})\(", re.MULTILINE)
"""As written by users who mistake a keyword for a function; inside brackets it may be one."""
_ENDS_OPEN = re.compile(rf"(?:[-+*/<>=!?,.%]|\b(?:{'|'.join(sorted(GO_ON_BEHIND))}))$")
_WORDS_BEFORE = "|".join(sorted(GO_ON_BEFORE)).replace(" ", r"[ \t]+")
_CONTINUES = re.compile(rf"[ \t]*(?:[-+*/<>=!?,.%)\]]|(?:{_WORDS_BEFORE})\b(?![ \t]*=))")
_PIECES = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|#[^\n]*|[()\[\]]|\n')
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_MOST_HIDDEN = 20
"""Hidden characters that are reported: a file with more is no text."""
_LINE_ENDS = "\x0b\x0c\x85"
"""Hidden characters that end a line elsewhere."""
_CLOSING = {")": "(", "]": "["}


class Line(msgspec.Struct, frozen=True):
    """One statement's text: `text` has spaces for comments, tabs and line ends, and begins at `start`."""

    start: int
    text: str


class Layout(msgspec.Struct, frozen=True):
    """A source cut into statements."""

    lines: tuple[Line, ...]
    comments: tuple[Comment, ...]
    diagnostics: tuple[Diagnostic, ...]
    last: Line = Line(0, "")
    """The last statement as far as it is written, also if a bracket or string of it is open; empty behind a line end
    that ends a statement."""


def lay_out(source: Source) -> Layout:
    """Cut a source into statements; what is wrong with strings and brackets is reported and left out."""
    if len(source.text) > MAX_FILE:
        span = Span(source, 0, 0)
        message = f"the file has {len(source.text):,} characters; the limit is {MAX_FILE:,}"
        return Layout((), (), (codes.TOO_LARGE.at(span, message, help='split it and join the parts with `use "…"`'),))
    text = source.text.replace("\r\n", " \n").replace("\r", "\n")
    if text.startswith("\ufeff"):
        text = " " + text[1:]
    return _Cutter(source, text).cut()


def goes_on(last: str, text: str, *, at: int, inside: bool) -> bool:
    """Return whether a statement whose last line is `last` continues in the line of a text that begins at an offset.

    Args:
        last: without its comment and the spaces at its end.
        text: the line and what follows.
        at: where the line begins.
        inside: a bracket of the statement is open.
    """
    if _BEGINS.match(text, at) or (not inside and _BEGINS_AS_FUNCTION.match(text, at)):
        return False
    return inside or bool(last and (_CONTINUES.match(text, at) or _ENDS_OPEN.search(last)))


class _Cutter:
    """One pass over a text."""

    def __init__(self, source: Source, text: str) -> None:
        self._source = source
        self._text = text
        self._blank: list[tuple[int, int]] = []
        """Ranges of the current statement that read as spaces."""
        self._lines: list[Line] = []
        self._comments: list[Comment] = []
        self._found: list[Diagnostic] = []
        self._open: list[tuple[str, int]] = []
        self._splits: list[int] = []
        """Where hidden characters split a word or a line."""
        self._start = 0
        self._broken = False
        self._following = 0
        """Start of the next line with content, as last found."""
        self._line_start = 0
        self._last = ""
        """The statement's last line with content, without its comment."""

    def cut(self) -> Layout:
        self._report_hidden()
        text = self._text
        for match in _PIECES.finditer(text):
            piece, at = match[0], match.start()
            match piece[0]:
                case "\n":
                    self._end_of_line(at)
                case "#":
                    before = text[text.rfind("\n", 0, at) + 1 : at]
                    span = Span(self._source, at, match.end())
                    self._comments.append(Comment(piece.rstrip(), span, own_line=not before.strip()))
                    self._blank.append((at, match.end()))
                case '"':
                    if len(piece) == 1 or piece[-1] != '"' or _escaped_end(piece):
                        advice = 'end it with `"` on this line'
                        self._report(codes.UNCLOSED_STRING, at, match.end(), "this string is not closed", advice)
                        self._broken = True
                case "(" | "[":
                    self._open.append((piece, at))
                    if len(self._open) == MAX_BRACKETS + 1:
                        message = f"more than {MAX_BRACKETS} nested brackets"
                        self._report(codes.TOO_LARGE, at, at + 1, message, "name parts of it with `let`")
                        self._broken = True
                case _:
                    self._close(piece, at)
        shown, start = self._shown(len(text)), self._start
        last = Line(start + len(shown) - len(shown.lstrip()), shown.lstrip())
        self._finish(len(text))
        return Layout(tuple(self._lines), tuple(self._comments), tuple(self._found), last)

    def _report_hidden(self) -> None:
        """Report hidden characters; outside of words, each then reads as a space."""
        text = self._text
        for match in _HIDDEN.finditer(text):
            at, char = match.start(), match[0]
            span = Span(self._source, at, at + 1)
            message, advice = f"hidden character U+{ord(char):04X}", "remove it"
            fix = Fix(f"remove U+{ord(char):04X}", (Edit(span, ""),))
            if char in _LINE_ENDS:
                advice, fix = "start a new line", Fix("start a new line", (Edit(span, "\n"),))
            self._found.append(codes.HIDDEN_CHARACTER.at(span, message, help=advice, fix=fix))
            if char in _LINE_ENDS or (_is_word(text[max(0, at - 1) : at]) and _is_word(text[at + 1 : at + 2])):
                self._splits.append(at)
            if len(self._found) > _MOST_HIDDEN:
                break
        self._text = _HIDDEN.sub(" ", text)

    def _report_lookalike(self, at: int, closing: str) -> None:
        """Report a character that looks like the bracket that is missing."""
        span, char = Span(self._source, at, at + 1), self._text[at]
        message, _ = lookalike(char) or (f"`{char}` is not `{closing}`", "")
        fix = Fix(f"write {closing}", (Edit(span, closing),))
        self._found.append(codes.FOREIGN_CHARACTER.at(span, message, help=f"write `{closing}`", fix=fix))

    def _close(self, piece: str, at: int) -> None:
        if self._open and self._open[-1][0] == _CLOSING[piece]:
            self._open.pop()
        elif not self._broken:
            self._broken = True
            if self._open:
                bracket, _ = self._open[-1]
                message, advice = f"`{piece}` cannot close `{bracket}`", "close it with its own bracket"
            else:
                message, advice = f"this `{piece}` closes nothing", "remove it, or open a bracket before it"
            self._report(codes.BRACKET, at, at + 1, message, advice)

    def _end_of_line(self, at: int) -> None:
        end = self._blank[-1][0] if self._blank and self._blank[-1][0] > self._line_start else at
        self._last = self._text[self._line_start : end].rstrip() or self._last
        self._line_start = at + 1
        if at - self._start > 4 * MAX_STATEMENT or not self._goes_on(self._next_text(at + 1)):
            self._finish(at)
        else:
            self._blank.append((at, at + 1))

    def _goes_on(self, following: int) -> bool:
        """Return whether the statement continues in the line that begins at an offset."""
        if following == len(self._text):
            return False
        return goes_on(self._last, self._text, at=following, inside=bool(self._open))

    def _next_text(self, at: int) -> int:
        """Return the start of the next line that is neither empty nor only a comment."""
        text = self._text
        if at <= self._following:
            return self._following
        while at < len(text):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            line = text[at:end].strip()
            if line and not line.startswith("#"):
                break
            at = end + 1
        self._following = min(at, len(text))
        return self._following

    def _shown(self, end: int) -> str:
        """Return the statement's text so far, with spaces in the place of comments and line ends."""
        parts, at = [], self._start
        for start, stop in self._blank:
            parts.append(self._text[at:start])
            parts.append(" " * (stop - start))
            at = stop
        parts.append(self._text[at:end])
        return "".join(parts).replace("\t", " ")

    def _finish(self, end: int) -> None:
        shown = self._shown(end)
        stripped = shown.strip()
        if self._open and not self._broken:
            bracket, at = self._open[-1]
            closing = ")" if bracket == "(" else "]"
            foreign = [i for i, plain in lookalikes_in(shown) if plain == closing and self._start + i > at]
            if foreign:
                self._report_lookalike(self._start + foreign[0], closing)
            else:
                advice = f"add the missing `{closing}`"
                self._report(codes.BRACKET, at, at + 1, f"this `{bracket}` is never closed", advice)
            self._broken = True
        # without spaces, so that how it is laid out makes no difference
        size = len(stripped) - stripped.count(" ")
        if size > MAX_STATEMENT:
            start = self._start + len(shown) - len(shown.lstrip())
            message = f"the statement has {size:,} characters; the limit is {MAX_STATEMENT:,}"
            self._report(codes.TOO_LARGE, start, start + 1, message, "name parts of it with `let`")
        elif stripped and not self._broken and not self._is_split(end):
            self._lines.append(Line(self._start + len(shown) - len(shown.lstrip()), stripped))
        self._start = end + 1
        self._blank = []
        self._open = []
        self._broken = False
        self._last = ""

    def _is_split(self, end: int) -> bool:
        """Return whether a hidden character splits a word or a line of the current statement: so much is wrong."""
        at = bisect_left(self._splits, self._start)
        return at < len(self._splits) and self._splits[at] < end

    def _report(self, code: Code, start: int, end: int, message: str, advice: str) -> None:
        self._found.append(code.at(Span(self._source, start, end), message, help=advice))


def _is_word(char: str) -> bool:
    return char != "" and (char.isalnum() or char in "_.")


def _escaped_end(piece: str) -> bool:
    """Return whether the last quote of a string is an escaped one."""
    body = piece[1:-1]
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1
