"""The end of a canary: it becomes the stable policy, or it goes. Texts in, texts out; touches no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.policy.policy_set import PolicySet

_KEPT = syntax.PolicyName | syntax.SchedulerName | syntax.ForPods | syntax.Priority


@dataclass(frozen=True, slots=True)
class Pair:
    """A canary and its stable policy."""

    canary: CheckedPolicy
    stable: CheckedPolicy

    @property
    def shown(self) -> str:
        """Return the pair for people."""
        assert self.canary.canary is not None
        words = " ".join(self.canary.canary.tree.span.text.split())
        return f"{self.canary.name}: {words} ({self.canary.source.name} beside {self.stable.source.name})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the end of a canary changes."""

    sources: tuple[Source, ...]
    """All that is left."""
    changed: tuple[Source, ...]
    """Those with another text than before."""
    removed: tuple[Source, ...]
    """Those that are gone, with their old texts."""


def canaries(policies: PolicySet) -> tuple[Pair, ...]:
    """Return the canaries, by name."""
    pairs = (
        Pair(policy.compiled.checked, policy.stable.compiled.checked)
        for policy in policies.policies
        if policy.canary is not None and policy.stable is not None
    )
    return tuple(sorted(pairs, key=lambda pair: pair.canary.name))


def promoted(pair: Pair, sources: Sequence[Source]) -> Outcome:
    """Return the sources with the canary's rules in the file of the stable policy, under its header."""
    new = Source(pair.stable.source.name, _as_stable(pair))
    left = tuple(new if each.name == new.name else each for each in sources if each.name != pair.canary.source.name)
    return Outcome(left, (new,), (pair.canary.source,))


def aborted(pair: Pair, sources: Sequence[Source]) -> Outcome:
    """Return the sources without the canary."""
    left = tuple(each for each in sources if each.name != pair.canary.source.name)
    return Outcome(left, (), (pair.canary.source,))


def _as_stable(pair: Pair) -> str:
    """Return the canary's text with the header of its stable policy in the place of its own."""
    canary, stable = pair.canary, pair.stable
    header = [s.span.text for s in stable.statements if isinstance(s, _KEPT) and s.span.source == stable.source]
    text = canary.source.text
    own = [s for s in canary.statements if s.span.source == canary.source]
    for statement in sorted(own, key=lambda s: s.span.start, reverse=True):
        match statement:
            case syntax.Canary(span=span):
                new = "".join(f"{line}\n" for line in header)
            case syntax.PolicyName(span=span):
                new = ""
            case _:
                continue
        start, end = _lines(text, span)
        text = text[:start] + new + text[end:]
    return text


def _lines(text: str, span: Span) -> tuple[int, int]:
    """Return the whole lines of a statement, with what is remarked behind it."""
    end = text.find("\n", span.end)
    return text.rfind("\n", 0, span.start) + 1, len(text) if end < 0 else end + 1
