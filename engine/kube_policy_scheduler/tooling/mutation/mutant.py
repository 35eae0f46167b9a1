"""One small change of a policy, as an edit of its text."""

from __future__ import annotations

from dataclasses import dataclass

from kube_policy_scheduler.diagnostics import Source, Span


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change, what kind it is and which case would notice it."""

    kind: str
    """Such as `comparison`; kinds are what people filter by."""
    span: Span
    """What is replaced."""
    text: str
    """What stands there instead."""
    hint: str
    """Which case would notice."""

    @property
    def source(self) -> Source:
        """Return the file that is changed."""
        return self.span.source

    def applied(self) -> Source:
        """Return the file with the change; its name stays."""
        text = self.source.text
        return Source(self.source.name, text[: self.span.start] + self.text + text[self.span.end :])

    def removed_and_added(self) -> tuple[str, str]:
        """Return the changed line, or lines joined, before and after, without indentation at the ends."""
        text = self.source.text
        start = text.rfind("\n", 0, self.span.start) + 1
        end = text.find("\n", self.span.end)
        end = len(text) if end < 0 else end
        before, after = text[start : self.span.start], text[self.span.end : end]
        return _one_line(before + self.span.text + after), _one_line(before + self.text + after)


def _one_line(text: str) -> str:
    return " ".join(text.split())
