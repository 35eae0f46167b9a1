"""Where a statement's canonical text may go on in the next line. Which of these places are used: `line_writer`.

Knows no printer: the text comes from `show`, its tree says what belongs together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube_policy_scheduler.lang import expressions, syntax
from kube_policy_scheduler.lang.reading.layout import goes_on
from kube_policy_scheduler.lang.walk import children

INDENT = 4
_LEVELS = {"+": "sum", "-": "sum", "*": "product", "/": "product", "%": "product", "??": "default"}
_NAME = re.compile(r"\w*")
_WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]+')


class Break(msgspec.Struct, frozen=True, eq=False):
    """A place where a line may end."""

    left: int
    """Where the line ends: an offset in the canonical text."""
    right: int
    """Where the next one begins; what is between is a space, or nothing."""
    closing: bool = False
    """The next line begins with the bracket that closes the group, and stands as far left as the group."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Parts of a text that stand on one line, or have all their breaks used."""

    parts: list[str | Break | Group] = field(default_factory=list)
    indent: int = INDENT

    def breaks(self) -> Iterator[Break]:
        """Yield the breaks of the group and of those inside it, in order."""
        for part in self.parts:
            match part:
                case Break():
                    yield part
                case Group():
                    yield from part.breaks()


def grouped(text: str, statement: syntax.Statement) -> Group:
    """Return the groups of a statement's canonical text, as its tree (parsed from that very text) says."""
    return _Grouping(text).statement(statement)


class _Grouping:
    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0

    def statement(self, statement: syntax.Statement) -> Group:
        group, at = Group(), 0
        below = _in_order(statement)
        for child in below:
            self._between(group, statement, at=at, end=child.span.start)
            group.parts.append(self._tree(child))
            at = child.span.end
        self._between(group, statement, at=at, end=len(self._text))
        return group

    def _between(self, group: Group, statement: syntax.Statement, *, at: int, end: int) -> None:
        """Add the words of a statement between two of its expressions: breaks stand before parts, after commas."""
        text = self._text[at:end]
        if isinstance(statement, syntax.Let | syntax.Def):
            group.parts.append(text)
            return
        if isinstance(
            statement, syntax.Order | syntax.Devices | syntax.Domains | syntax.UseKubernetes | syntax.UseScores
        ):
            self._list(group, at, end, parts=isinstance(statement, syntax.UseScores))
            return
        if text == ", " and isinstance(statement, syntax.Queue):
            group.parts.append(text)
            return
        if text == ", ":  # between the roles of a gang
            self._list(group, at, end)
            return
        if at == 0:
            group.parts.append(text)
            return
        named = ("for",) if isinstance(statement, syntax.Metric) else ("as", "over", "else")
        done, words = at, list(_WORDS.finditer(text))
        while words:
            word = words.pop(0)
            start = at + word.start()
            group.parts.append(self._text[done : start - 1])
            self._break(group, start - 1, start)
            done = start
            if word[0] == "counting":
                while words and words.pop(0)[0] != "nodes":
                    pass
            elif word[0] == "within" and words and words[0][0] == "one":
                del words[:2]  # `one`, and the first topology
                while words and words[0][0] == "or":
                    del words[:2]
            elif word[0] == "evict" and words and words[0][0] == "whole":
                words.pop(0)
            elif word[0] in named and words:
                words.pop(0)  # the part's own word, such as a name; another part may follow
            else:
                break
        group.parts.append(self._text[done:end])

    def _list(self, group: Group, at: int, end: int, *, parts: bool = False) -> None:
        """Add a text with a break after each comma, and before `without` and `with` (parts); no strings stand in it."""
        done = at
        for comma in re.finditer(", | (?=with(?:out)? )" if parts else ", ", self._text[at:end]):
            done, before = at + comma.end(), done
            group.parts.append(self._text[before : done - 1])
            self._break(group, done - 1, done)
        group.parts.append(self._text[done:end])

    # --- expressions -------------------------------------------------------------------------------------

    def _tree(self, tree: Any) -> Group | str:
        start, end = tree.span.start, tree.span.end
        first = next(iter(_in_order(tree)), None)
        if self._text[start] == "(" and (first is None or first.span.start > start):
            group = Group(["("])
            self._depth += 1
            self._break(group, start + 1, start + 1)
            inner = self._inner(tree, start + 1, end - 1)
            group.parts.append(_alone(inner))
            self._break(group, end - 1, end - 1, closing=True)
            self._depth -= 1
            group.parts.append(")")
            return group
        return self._inner(tree, start, end)

    def _inner(self, tree: Any, start: int, end: int) -> Group | str:
        match tree:
            case expressions.Call() | expressions.Aggregate() | expressions.ListOf() | expressions.LabelTest() if (
                end > start
            ):
                return self._bracketed(tree, start, end)
            case expressions.Index():
                return self._plain(tree, start, end)
        below = _in_order(tree)
        if isinstance(tree, expressions.Binary):
            below = _chain(tree)
        if not below:
            return self._text[start:end]
        if isinstance(tree, expressions.Binary | expressions.Logical | expressions.Conditional):
            return self._operators(below, start, end)
        return self._plain(tree, start, end)

    def _operators(self, operands: Sequence[Any], start: int, end: int) -> Group:
        """Break before operators, and before `then` and `else`."""
        group, at = Group(), start
        for child in operands:
            if at > start:
                self._break(group, at, at + 1)
                at += 1
            group.parts.extend((self._text[at : child.span.start], self._tree(child)))
            at = child.span.end
        group.parts.append(self._text[at:end])
        return group

    def _plain(self, tree: Any, start: int, end: int) -> Group:
        """Break only inside what stands below."""
        group, at = Group(), start
        for child in _in_order(tree):
            group.parts.extend((self._text[at : child.span.start], self._tree(child)))
            at = child.span.end
        group.parts.append(self._text[at:end])
        return group

    def _bracketed(self, tree: Any, start: int, end: int) -> Group | str:
        """Break after the opening bracket, after commas, before `for` and `where`, before the closing one."""
        text, below = self._text, _in_order(tree)
        opening = start if isinstance(tree, expressions.ListOf) else text.find("(", start, end)
        if opening < 0 or end - opening <= 2:
            return text[start:end]
        group, at = Group([text[start : opening + 1]]), opening + 1
        self._depth += 1
        self._break(group, at, at)
        if isinstance(tree, expressions.LabelTest):
            self._list(group, at, end - 1)
            at = end - 1
        for child in below:
            gap = text[at : child.span.start]
            if at > opening + 1 and gap.startswith((", ", " for ", " where ")):
                edge = at + (1 if gap[0] == "," else 0)
                group.parts.append(text[at:edge])
                self._break(group, edge, edge + 1)
                at = edge + 1
            inner = self._tree(child)
            inner = _alone(inner) if len(below) == 1 and at == child.span.start else inner
            group.parts.extend((text[at : child.span.start], inner))
            at = child.span.end
        group.parts.append(text[at : end - 1])
        self._break(group, end - 1, end - 1, closing=True)
        self._depth -= 1
        group.parts.append(text[end - 1 : end])
        return group

    def _break(self, group: Group, left: int, right: int, *, closing: bool = False) -> None:
        """Add a break where the layout of the language allows it, else the text in its place."""
        # no operator or word after which a line goes on is longer
        last = self._text[max(0, left - 10) : left]
        # the line may turn out to hold nothing but its first word: that must not begin a statement either
        first = _NAME.match(self._text, right)
        alone = first[0] if first else ""
        inside = self._depth > 0
        if goes_on(last, self._text, at=right, inside=inside) and goes_on(last, alone, at=0, inside=True):
            group.parts.append(Break(left, right, closing))
        else:
            group.parts.append(self._text[left:right])


def _alone(part: str | Group) -> str | Group:
    """Return what stands alone between brackets: its operators stand right below its first operand."""
    if isinstance(part, str) or any(isinstance(inner, Break) and inner.closing for inner in part.parts):
        return part
    return Group(part.parts, indent=0)


def _in_order(tree: Any) -> list[Any]:
    return sorted(children(tree), key=lambda child: child.span.start)


def _chain(tree: expressions.Binary) -> list[Any]:
    """Return the operands of `a + b - c`, which group to the left."""
    level, operands, left = _LEVELS.get(tree.operator), [tree.right], tree.left
    while level is not None and isinstance(left, expressions.Binary) and _LEVELS.get(left.operator) == level:
        operands.append(left.right)
        left = left.left
    return [left, *reversed(operands)]
