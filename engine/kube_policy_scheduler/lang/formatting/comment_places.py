"""Where comments inside a statement go when its text is rewritten. Knows no grammar: it compares words.

A comment at the end of a line stays behind the word before it, one on a line of its own before the word after it,
or as near as a line may end.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher

import msgspec

from kube_policy_scheduler.lang.formatting.line_breaks import Break
from kube_policy_scheduler.lang.syntax import Comment

_WORDS = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"|#[^\n]*|\w+|==|!=|<=|>=|\?\?|[^\w\s]')
_OPERATORS = frozenset({"and", "or", "in", "not", "is", "matches", "if", "then", "else", "for", "where"})

_MANY = 1000
"""Words; comparing two texts of as many equal words takes about 0.1 s."""


class Places(msgspec.Struct, frozen=True):
    """The comments of one statement by where they go."""

    above: list[Comment] = msgspec.field(default_factory=list)
    inside: dict[Break, list[Comment]] = msgspec.field(default_factory=dict)
    behind: list[Comment] = msgspec.field(default_factory=list)
    """After the statement: the first ends its last line, the others have lines of their own below."""


class _Word(msgspec.Struct, frozen=True):
    text: str
    """Without quotes: the value of a label is the same with them and without."""
    start: int
    end: int
    operator: bool


def placed(comments: Sequence[Comment], *, source: str, start: int, canonical: str, breaks: Sequence[Break]) -> Places:
    """Return where the comments of a statement go.

    Args:
        comments: in the order in which they stand.
        source: the statement as the author wrote it.
        start: where it begins in its file.
        canonical: the statement as it will be written, on one line.
        breaks: the places of the canonical text where a line may end, in order.
    """
    if not comments:
        return Places()
    written, meant = _words(source), _words(canonical)
    partner = _partners(written, meant)
    ends, starts = [word.end for word in written], [word.start for word in written]
    places = Places()
    for comment in comments:
        at = comment.span.start - start
        if comment.own_line:
            following = bisect_left(starts, at)
            target = next((partner[i] for i in range(following, len(written)) if i in partner), None)
            _before(places, comment, breaks, len(canonical) if target is None else meant[target].start)
        else:
            last = bisect_right(ends, at) - 1
            target = next((partner[i] for i in range(last, -1, -1) if i in partner), None)
            _after(places, comment, breaks, None if target is None else meant[target])
    return places


def _before(places: Places, comment: Comment, breaks: Sequence[Break], offset: int) -> None:
    """Put a comment on a line of its own before the word at an offset."""
    at = bisect_right(breaks, offset, key=lambda place: place.right) - 1
    if at < 0:
        places.above.append(comment)
    else:
        places.inside.setdefault(breaks[at], []).append(comment)


def _after(places: Places, comment: Comment, breaks: Sequence[Break], word: _Word | None) -> None:
    """Put a comment at the end of the line with a word, or, of an operator that begins a line, the one before."""
    if word is None:
        places.above.append(replace(comment, own_line=True))
        return
    at = bisect_left(breaks, word.end, key=lambda place: place.left)
    before = breaks[at - 1] if at else None
    if before is not None and before.right == word.start and not before.closing and word.operator:
        at -= 1
    if at == len(breaks):
        places.behind.append(comment)
    else:
        places.inside.setdefault(breaks[at], []).append(comment)


def _words(text: str) -> list[_Word]:
    found = []
    for match in _WORDS.finditer(text):
        word = match[0]
        if word[0] != "#":
            operator = word in _OPERATORS or not (word[0].isalnum() or word[0] in '_"([')
            found.append(_Word(word.strip('"'), match.start(), match.end(), operator))
    return found


def _partners(written: Sequence[_Word], meant: Sequence[_Word]) -> dict[int, int]:
    """Return which word of the canonical text stands for which one of the author's."""
    ours, theirs = [word.text for word in written], [word.text for word in meant]
    # without words that come often, the time grows with the length alone
    matcher = SequenceMatcher(None, ours, theirs, autojunk=len(ours) > _MANY)
    return {block.a + step: block.b + step for block in matcher.get_matching_blocks() for step in range(block.size)}
