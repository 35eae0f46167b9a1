"""Compiled policies as the tester asks them: who governs a pod, and what the parts of its filters say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from engine.cluster.nodes import BoolArray
from engine.cluster.pods import PodInfo
from engine.cluster.signals import Query
from engine.framework.frame import Frame
from engine.framework.profile import Profile
from engine.lang import typed
from engine.lang.checked import ClauseKind, Test
from engine.lang.columns import TRUE, full
from engine.lang.compiled import CompiledTest, Part
from engine.policy.policy import Policy
from engine.policy.policy_set import PolicySet


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One operand of a filter's `and`."""

    name: str
    """As it is written."""
    clause: str
    """The filter's name."""
    holds: BoolArray
    """`bool[nodes]`"""


class TestedPolicy(Protocol):
    """What a run asks of the policy that governs a pod."""

    @property
    def profile(self) -> Profile:
        """Return the plugins that place its pods."""
        ...

    def hold_reason(self, frame: Frame) -> str | None:
        """Return why the pod waits outside the active queue, or None."""
        ...

    def conjuncts(self, frame: Frame) -> Iterable[Conjunct]:
        """Return what the parts of its filters say about all nodes."""
        ...


class TestedPolicies(Protocol):
    """What a run asks of a policy set."""

    @property
    def queries(self) -> Iterable[Query]:
        """Return every metric that the policies read."""
        ...

    def governing(self, pod: PodInfo) -> TestedPolicy | None:
        """Return the policy that governs the pod, None where none does."""
        ...


class CompiledPolicies:
    """A compiled policy set."""

    def __init__(self, policy_set: PolicySet) -> None:
        self._set = policy_set

    @property
    def queries(self) -> Iterable[Query]:
        """Return every metric that the policies read."""
        return self._set.queries

    def governing(self, pod: PodInfo) -> TestedPolicy | None:
        """Return the policy that governs the pod, None where none does."""
        policy = self._set.governing(pod)
        return None if policy is None else _CompiledPolicy(policy)


class _CompiledPolicy:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def profile(self) -> Profile:
        return self._policy.profile

    def hold_reason(self, frame: Frame) -> str | None:
        return self._policy.hold_reason(frame)

    def conjuncts(self, frame: Frame) -> Iterator[Conjunct]:
        compiled = self._policy.compiled
        for clause, checked in zip(compiled.clauses, compiled.checked.clauses, strict=True):
            if not isinstance(clause, CompiledTest) or not isinstance(checked, Test):
                continue
            value = checked.value
            if clause.kind is not ClauseKind.FILTER or not isinstance(value, typed.Logic) or value.operator != "and":
                continue
            by_span = {part.span: part for part in clause.parts}
            for operand in value.operands:
                part = by_span.get(operand.span)
                if part is not None:
                    yield Conjunct(" ".join(operand.span.text.split()), clause.name, _holds(part, frame))


def _holds(part: Part, frame: Frame) -> BoolArray:
    answer: Any = part.evaluate(frame)
    holds: BoolArray = full(answer == TRUE if part.info.maybe else answer, frame.size)
    return holds.astype(np.bool_)
