"""What one pod's decision was, in full: the cycle's choice, and what every filter alone says about every node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.framework.cycle import Cycle
from engine.framework.evaluation import evaluate
from engine.framework.frame import Frame
from engine.framework.plugin import FilterPlugin, Ready
from engine.framework.status import Status
from engine.tooling.tester.policies import Conjunct, TestedPolicy


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one filter says, asked alone."""

    clause: str
    refused: Mapping[str, tuple[str, ...]]
    """Reasons by node; a pod that is refused as a whole is refused on every node."""
    within: str = ""
    """The filter of whose `and` it is a part, "" for a whole filter."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One decision and all that a test may ask about it."""

    host: str | None
    tied: tuple[str, ...]
    """Nodes with the host's total, the host among them, by name; empty where the pod goes nowhere."""
    nodes: frozenset[str]
    totals: Mapping[str, float]
    """Totals of the feasible nodes."""
    verdicts: tuple[Verdict, ...]
    """One for each filter that applies, in the order in which they are asked."""
    conjuncts: tuple[Verdict, ...]
    """One for each part of the filters that are joined by `and`."""
    clauses: frozenset[str]
    """Names of all filters and their parts, also of those that do not apply to the pod."""
    message: str
    """Why it goes nowhere, in kube-scheduler's words."""
    held: str | None
    """Why it waits outside the active queue; None where it does not."""
    victims: frozenset[str]
    """Names of the pods that would be evicted to make room."""
    degraded: frozenset[str]
    """Queries that lack a fresh value on some node."""

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


def outcome(frame: Frame, policy: TestedPolicy, *, seed: int, held: str | None, degraded: Iterable[str]) -> Outcome:
    """Decide a pod with the scheduling cycle, and ask every filter alone; a pod that is held goes nowhere."""
    nodes, profile = frame.cluster.nodes, policy.profile
    parts = tuple(policy.conjuncts(frame))
    clauses = frozenset((*(plugin.name for plugin in profile.filters), *(part.name for part in parts)))
    if held is not None:
        return Outcome(
            host=None,
            tied=(),
            nodes=frozenset(nodes.names),
            totals={},
            verdicts=(),
            conjuncts=(),
            clauses=clauses,
            message=f"held: {held}",
            held=held,
            victims=frozenset(),
            degraded=frozenset(degraded),
        )
    decision = Cycle(seed=seed).decide(frame, profile)
    evaluation = evaluate(frame, profile)
    names = [nodes.names[row] for row in evaluation.feasible]
    totals = dict(zip(names, (float(total) for total in evaluation.totals), strict=True))
    best = max(totals.values(), default=0.0)
    return Outcome(
        host=decision.host,
        tied=tuple(sorted(name for name, total in totals.items() if total == best)) if decision.host else (),
        nodes=frozenset(nodes.names),
        totals=totals,
        verdicts=tuple(v for plugin in profile.filters if (v := _verdict(plugin, frame)) is not None),
        conjuncts=tuple(_verdict_of_part(part, nodes.names) for part in parts),
        clauses=clauses,
        message=decision.message,
        held=None,
        victims=frozenset(pod.name for pod in decision.preemption.victims) if decision.preemption else frozenset(),
        degraded=frozenset(degraded),
    )


def _verdict_of_part(part: Conjunct, names: Sequence[str]) -> Verdict:
    refused = {names[int(row)]: (f"{part.name} does not hold",) for row in np.flatnonzero(~part.holds)}
    return Verdict(part.name, refused, part.clause)


def _verdict(plugin: FilterPlugin, frame: Frame) -> Verdict | None:
    names = frame.cluster.nodes.names
    prepared = plugin.pre_filter(frame)
    if isinstance(prepared, Status):
        return Verdict(plugin.name, dict.fromkeys(names, prepared.reasons))
    if not isinstance(prepared, Ready):
        return None
    refused: dict[str, tuple[str, ...]] = {}
    if prepared.nodes is not None:
        refused = {name: (f"{plugin.name} means other nodes",) for name in names if name not in prepared.nodes}
    for refusal in plugin.refusals(frame, prepared.state):
        for row in np.flatnonzero(refusal.where):
            refused[names[row]] = (*refused.get(names[row], ()), refusal.reason)
    return Verdict(plugin.name, refused)
