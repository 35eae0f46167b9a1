"""What one pod's decision was: the choice of the cycle and, where asked for, what every filter alone says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin
from kube_policy_scheduler.framework.probe import probe
from kube_policy_scheduler.policy.decision_inputs import undefined_nodes
from kube_policy_scheduler.tooling.tester.policies import Conjunct, TestedPolicy


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one filter says, asked alone."""

    clause: str
    refused: Mapping[str, tuple[str, ...]]
    """Reasons by node; a pod that is refused as a whole is refused on every node."""
    undefined: frozenset[str] = frozenset()
    """The nodes that it refuses because it has no value there."""
    within: str = ""
    """The filter of whose `and` it is a part, "" for a whole filter."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that is probably not meant."""

    code: str
    """Of a lint rule; "" of a metric."""
    text: str

    def __str__(self) -> str:
        return f"{self.code} {self.text}" if self.code else self.text


@dataclass(frozen=True, slots=True)
class Outcome:
    """One decision and all that a test may ask about it."""

    pod: str
    """The pod's name."""
    host: str | None = None
    tied: tuple[str, ...] = ()
    """Nodes with the host's total, the host among them, by name; empty where the pod goes nowhere."""
    nodes: frozenset[str] = frozenset()
    totals: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Totals of the feasible nodes."""
    verdicts: tuple[Verdict, ...] = ()
    """One for each filter that applies, in the order in which they are asked; empty unless asked for in full."""
    conjuncts: tuple[Verdict, ...] = ()
    """One for each part of the filters that are joined by `and`; empty unless asked for in full."""
    message: str = ""
    """Why it goes nowhere, in kube-scheduler's words."""
    held: str | None = None
    """Why it waits outside the active queue; None where it does not."""
    waits: str | None = None
    """For whom it waits though it has a place; None where it does not."""
    victims: frozenset[str] = frozenset()
    """Names of the pods that would be evicted to make room."""
    degraded: frozenset[str] = frozenset()
    """Queries that lack a fresh value on some node."""
    warnings: tuple[Warned, ...] = ()
    error: str | None = None
    """Why there is no decision at all; None where there is one."""

    @property
    def feasible(self) -> frozenset[str]:
        """Return the nodes that pass every filter."""
        return frozenset(self.totals)

    def verdict(self, clause: str) -> Verdict | None:
        """Return what a filter, or a part of one, says; None where it does not apply to the pod."""
        everything = (*self.verdicts, *self.conjuncts)
        return next((verdict for verdict in everything if verdict.clause == clause), None)

    def refusals(self, node: str) -> Iterator[str]:
        """Return what people read of each filter that refuses a node: its parts that do not hold, or its reasons."""
        for verdict in self.verdicts:
            if node in verdict.refused:
                parts = [p.clause for p in self.conjuncts if p.within == verdict.clause and node in p.refused]
                yield ", ".join(parts) if parts else f"{verdict.clause} ({', '.join(verdict.refused[node])})"


def decide(frame: Frame, policy: TestedPolicy, cycle: Cycle, *, in_full: bool) -> Outcome:
    """Decide a pod with the scheduling cycle; `in_full` also asks every filter alone."""
    known, profile = frame.cluster.nodes.names, policy.profile
    decision = cycle.decide(frame, profile)
    evaluation = evaluate(frame, profile)
    names = [known[row] for row in evaluation.feasible.tolist()]
    totals = dict(zip(names, evaluation.totals.tolist(), strict=True))
    best = max(totals.values(), default=0.0)
    verdicts: tuple[Verdict, ...] = ()
    conjuncts: tuple[Verdict, ...] = ()
    if in_full:
        verdicts = tuple(v for plugin in profile.filters if (v := _verdict(plugin, frame)) is not None)
        conjuncts = tuple(_verdict_of_part(part, known) for part in policy.conjuncts(frame))
    return Outcome(
        pod=frame.pod.name,
        host=decision.host,
        tied=tuple(sorted(name for name, total in totals.items() if total == best)) if decision.host else (),
        nodes=frozenset(known),
        totals=totals,
        verdicts=verdicts,
        conjuncts=conjuncts,
        message=decision.message,
        victims=frozenset(pod.name for pod in decision.preemption.victims) if decision.preemption else frozenset(),
    )


def _verdict_of_part(part: Conjunct, names: Sequence[str]) -> Verdict:
    refused = {names[int(row)]: (f"{part.name} does not hold",) for row in np.flatnonzero(~part.holds)}
    return Verdict(part.name, refused, within=part.clause)


def _verdict(plugin: FilterPlugin, frame: Frame) -> Verdict | None:
    names = frame.cluster.nodes.names
    asked = probe(frame, plugin)
    if not asked.applies:
        return None
    refused: dict[str, tuple[str, ...]] = {}
    for reason, where in asked.reasons():
        for row in np.flatnonzero(where):
            refused[names[row]] = (*refused.get(names[row], ()), reason)
    missing = undefined_nodes(plugin, frame)
    undefined = frozenset(names[row] for row in np.flatnonzero(missing)) if missing is not None else frozenset[str]()
    return Verdict(plugin.name, refused, undefined)
