"""What tools tell people about a text: sources, spans, diagnostics, and how they are shown.

Knows nothing of policies: any text with lines can be pointed at.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

import msgspec

_TAB_WIDTH = 4
_MARGIN = 12
"""Characters kept before the caret where a long line has to be cut."""


@dataclass(frozen=True, slots=True)
class Source:
    """A named text."""

    name: str
    """As people know it: usually a path."""
    text: str = field(repr=False)
    _starts: list[int] = field(default_factory=list, repr=False, compare=False)

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both counted from 1, columns in characters."""
        starts = self._line_starts()
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return a line without its end, counted from 1."""
        starts = self._line_starts()
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def _line_starts(self) -> list[int]:
        if not self._starts:
            self._starts.append(0)
            at = self.text.find("\n")
            while at >= 0:
                self._starts.append(at + 1)
                at = self.text.find("\n", at + 1)
        return self._starts


class Span(msgspec.Struct, frozen=True):
    """Half-open range of character offsets in one source."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        """Return the text in the range."""
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """Return the range from the start of this one to the end of the other."""
        return Span(self.source, self.start, other.end)

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"
    """Cannot be right; the policy is not loaded."""
    WARNING = "warning"
    """Is probably not meant."""
    NOTE = "note"
    """Worth knowing."""

    @property
    def rank(self) -> int:
        """Return 0 for the worst."""
        return list(Severity).index(self)


class Edit(msgspec.Struct, frozen=True):
    """A text to put in the place of a span; an empty span inserts."""

    span: Span
    text: str


class Fix(msgspec.Struct, frozen=True):
    """Edits that remove the cause of a diagnostic."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool = True
    """What is decided stays as it was, or nothing could be decided and only one thing can have been meant. Fixes that
    guess are shown, and left to people."""


class Label(msgspec.Struct, frozen=True):
    """A second place that has to do with the problem, and what it has to do with it."""

    span: Span
    text: str


class Diagnostic(msgspec.Struct, frozen=True):
    """One problem: what is wrong, where, and what to do."""

    code: str
    """Stable, such as `P0102`; `policyctl explain-code` has a page on it."""
    severity: Severity
    message: str
    """One sentence that says what is wrong: lower case, no full stop."""
    span: Span
    help: str = ""
    """One sentence that says what to do."""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    fix: Fix | None = None

    @property
    def sort_key(self) -> tuple[str, int, int, str]:
        """Order by place, then by code."""
        return self.span.source.name, self.span.start, self.span.end, self.code

    def __str__(self) -> str:
        return f"{self.span}: {self.severity.value}[{self.code}]: {self.message}"


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the diagnostics by place, each once."""
    return tuple(sorted(dict.fromkeys(diagnostics), key=lambda d: d.sort_key))


def errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Return whether any of them is an error."""
    return any(d.severity is Severity.ERROR for d in diagnostics)


def compatible(source: Source, fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """Return those fixes of a source that can be made together: each as a whole, the first of two that overlap."""
    taken: dict[Edit, None] = {}
    chosen: list[Fix] = []
    for fix in sorted(dict.fromkeys(fixes), key=lambda f: min((e.span.start, e.span.end) for e in f.edits)):
        edits = [edit for edit in fix.edits if edit not in taken]
        mine = all(edit.span.source == source for edit in fix.edits)
        if edits and mine and not any(_overlap(edit.span, other.span) for edit in edits for other in taken):
            taken.update(dict.fromkeys(edits))
            chosen.append(fix)
    return tuple(chosen)


def _overlap(one: Span, other: Span) -> bool:
    return (one.start < other.end and other.start < one.end) or one.start == other.start


def apply_fixes(source: Source, fixes: Iterable[Fix]) -> str:
    """Return the text after the fixes that are compatible."""
    text = source.text
    edits = {edit for fix in compatible(source, fixes) for edit in fix.edits}
    for edit in sorted(edits, key=lambda e: e.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


# --- showing ---------------------------------------------------------------------------------------------

_RESET = "\x1b[0m"
_STYLES = {
    Severity.ERROR: "\x1b[1;31m",
    Severity.WARNING: "\x1b[1;33m",
    Severity.NOTE: "\x1b[1;36m",
}
_BOLD, _BLUE, _GREEN = "\x1b[1m", "\x1b[1;34m", "\x1b[1;32m"


def render(diagnostic: Diagnostic, *, colour: bool = False, width: int = 100) -> str:
    """Return the diagnostic for people: first line, source line with caret, help.

    The first line is `FILE:LINE:COLUMN: severity[CODE]: message`, without colour inside the place.
    """

    def paint(style: str, text: str) -> str:
        return f"{style}{text}{_RESET}" if colour and text else text

    style = _STYLES[diagnostic.severity]
    tag = paint(style, f"{diagnostic.severity.value}[{diagnostic.code}]")
    out = [f"{diagnostic.span}: {tag}: {paint(_BOLD, printable(diagnostic.message))}"]
    places = [(diagnostic.span, "", "^", style), *((b.span, b.text, "-", _BLUE) for b in diagnostic.labels)]
    gutter = max(len(str(span.source.position(span.start)[0])) for span, *_ in places)
    bar = " " * gutter + " |"
    for at, (span, text, mark, mark_style) in enumerate(places):
        number, _ = span.source.position(span.start)
        if at and span.source != diagnostic.span.source:
            out.append(paint(_BLUE, " " * gutter + "--> ") + str(span))
        if not span.source.text:
            continue  # a file that is empty, or could not be read: there is nothing to show
        line, caret = excerpt(span, mark, width - gutter - 3)
        out.append(paint(_BLUE, bar))
        out.append(f"{paint(_BLUE, f'{number:>{gutter}} |')} {line}")
        out.append(f"{paint(_BLUE, bar)} {paint(mark_style, caret)}{' ' if text else ''}{paint(mark_style, text)}")
    for kind, text in (*(("note", n) for n in diagnostic.notes), ("help", diagnostic.help)):
        if text:
            first, *rest = printable(text, keep="\n").split("\n")
            out.append(f"{' ' * gutter} = {paint(_GREEN, kind)}: {first}")
            out.extend(f"{' ' * gutter}         {more}" for more in rest)
    return "\n".join(out)


def excerpt(span: Span, mark: str, width: int) -> tuple[str, str]:
    """Return the line of a span and the marks under it, cut to the width around the span."""
    number, column = span.source.position(span.start)
    line = span.source.line(number)
    start = column - 1
    end = min(len(line), start + max(1, span.end - span.start))
    width = max(width, 2 * _MARGIN)
    left = 0
    # so that the work is not proportional to the line: one may be as long as a file
    long = len(line) > 2 * width or _columns(line) > width
    if long and start > width - _MARGIN:
        left = start - _MARGIN
    shown = line[left : left + width]
    before, marked = line[left:start], line[start:end][: max(1, left + width - start)]
    prefix, suffix = ("…" if left else ""), ("…" if left + width < len(line) else "")
    caret = " " * (_columns(before) + len(prefix)) + mark * max(1, _columns(marked))
    return f"{prefix}{printable(shown)}{suffix}", caret


def _columns(text: str) -> int:
    """Return how many terminal columns the printable form of a text takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in printable(text)
    )


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with tabs as spaces and control characters (a terminal would obey them) replaced."""
    if text.isprintable():
        return text
    return "".join(
        " " * _TAB_WIDTH if c == "\t" else c if c.isprintable() or c in keep else "\N{REPLACEMENT CHARACTER}"
        for c in text
    )


_LONGEST_WORD = 64
_MOST_EDITS = 5
_MOST_COMPARED = 100
"""Words that are compared letter by letter, of those that have about the same letters: 10 ms at most."""


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant: within two edits, or a third of the length; else None.

    Nobody mistypes a word of more than 64 letters, or in more than five places: the cost does not grow with either.
    """
    best: tuple[int, str] | None = None
    limit = min(max(2, len(word) // 3), _MOST_EDITS) if len(word) > 2 else 1
    if len(word) > _LONGEST_WORD:
        return None
    letters, compared = Counter(word.lower()), 0
    for candidate in known:
        if abs(len(candidate) - len(word)) > limit or compared == _MOST_COMPARED:
            continue
        theirs = Counter(candidate.lower())
        if max((letters - theirs).total(), (theirs - letters).total()) > limit:
            continue  # so many letters at least would have to be replaced
        compared += 1
        distance = _edits(word.lower(), candidate.lower(), limit)
        if distance <= limit and (best is None or (distance, candidate) < best):
            best = (distance, candidate)
    return best[1] if best else None


def _edits(left: str, right: str, limit: int) -> int:
    """Return the number of insertions, deletions, replacements and swaps between two words, if within the limit."""
    beyond = limit + 1
    previous: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        # what lies farther from the diagonal than the limit takes more edits
        low, high = max(1, i - limit), min(len(right), i + limit)
        before, previous, row = previous, row, [beyond] * (len(right) + 1)
        row[0] = i
        for j in range(low, high + 1):
            b = right[j - 1]
            row[j] = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                row[j] = min(row[j], before[j - 2] + 1)
        if min(row) > limit:
            return beyond
    return row[-1]
