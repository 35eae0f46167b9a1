"""Groups to lines: the outermost group that does not fit is broken first. Knows no language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_policy_scheduler.lang.formatting.line_breaks import Break, Group
from kube_policy_scheduler.lang.syntax import Comment


def written(group: Group, *, comments: Mapping[Break, Sequence[Comment]], width: int) -> str:
    """Return the text with the breaks used that comments or the width ask for, by the outermost group first.

    The first comment at a break ends the line before it, unless it has a line of its own as all others do.
    """
    writer = _Writer(comments, width)
    writer.measure(group)
    writer.group(group, indent=0, behind=0)
    return "".join(writer.out)


class _Writer:
    def __init__(self, comments: Mapping[Break, Sequence[Comment]], width: int) -> None:
        self._comments = comments
        self._width = width
        self._column = 0
        self._lengths: dict[Group, int] = {}
        """Characters on one line; beyond the width where a comment is inside."""
        self.out: list[str] = []

    def measure(self, group: Group) -> int:
        length = 0
        for part in group.parts:
            match part:
                case str():
                    length += len(part)
                case Break():
                    length += part.right - part.left + (self._width if part in self._comments else 0)
                case Group():
                    length += self.measure(part)
        self._lengths[group] = length
        return length

    def group(self, group: Group, *, indent: int, behind: int) -> None:
        """Write a group in a line that has an indent; `behind` characters follow on the group's last line."""
        if self._column + self._lengths[group] + behind <= self._width:
            self._flat(group)
            return
        inner = indent
        for part, follow in zip(group.parts, self._following(group, behind), strict=True):
            match part:
                case str():
                    self._text(part)
                case Break():
                    self._comment(part, indent + group.indent)
                    inner = indent if part.closing else indent + group.indent
                    self.out.append("\n" + " " * inner)
                    self._column = inner
                case Group():
                    self.group(part, indent=inner, behind=follow)

    def _following(self, group: Group, behind: int) -> list[int]:
        """Return for each part of a broken group how many characters follow it on its line."""
        lengths = []
        for part in reversed(group.parts):
            lengths.append(behind)
            match part:
                case str():
                    behind += len(part)
                case Break():
                    behind = 0
                case Group():
                    behind += self._lengths[part]
        return lengths[::-1]

    def _flat(self, group: Group) -> None:
        for part in group.parts:
            match part:
                case str():
                    self._text(part)
                case Break():
                    self._text(" " * (part.right - part.left))
                case Group():
                    self._flat(part)

    def _comment(self, place: Break, indent: int) -> None:
        for at, comment in enumerate(self._comments.get(place, ())):
            ends_line = at == 0 and not comment.own_line
            self.out.append(f"  {comment.text}" if ends_line else f"\n{' ' * indent}{comment.text}")

    def _text(self, text: str) -> None:
        self.out.append(text)
        self._column += len(text)
