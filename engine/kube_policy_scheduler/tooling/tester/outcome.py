"""One decision of a test: what is asked of the policies, and everything that a case may expect of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np

from kube_policy_scheduler.cluster.devices.node_devices import Chosen
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.diagnostics import Diagnostic, Severity
from kube_policy_scheduler.framework.decide.device_columns import names_of_devices
from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.frame import DeviceOrder, Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod, QueuePosition
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, CompiledTest, Operand
from kube_policy_scheduler.policy.answer import Answer, GangWaits, Held, NoDomain, Placed
from kube_policy_scheduler.policy.decision_inputs import Rules, undefined_nodes
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.tester.wanted import number


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One operand of a filter's `and`."""

    name: str
    """As it is written."""
    clause: str
    """The filter's name."""
    holds: BoolArray
    """`bool[nodes]`"""


class TestedPolicy:
    """One policy of a compiled set."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def profile(self) -> Profile:
        """Return the plugins that place its pods."""
        return self.policy.profile

    @property
    def clauses(self) -> Sequence[CompiledClause]:
        """Return its clauses."""
        return self.policy.clauses

    @cached_property
    def clause_names(self) -> frozenset[str]:
        """Return the names of its filters, and of the parts of these."""
        return frozenset((*(plugin.name for plugin in self.profile.filters), *(part.text for _, part in self._parts)))

    @cached_property
    def rules(self) -> Rules:
        """Return what decides about its pods."""
        return Rules(self.policy.profile, self.policy)

    def position(self, queued: QueuedPod, frame: Frame) -> QueuePosition:
        """Return the position of the pod in the queue."""
        return self.policy.position(queued, frame)

    def conjuncts(self, frame: Frame) -> Iterator[Conjunct]:
        """Return what the parts of its filters say about all nodes."""
        for clause, part in self._parts:
            yield Conjunct(part.text, clause, part.holds(frame))

    @cached_property
    def _parts(self) -> tuple[tuple[str, Operand], ...]:
        tests = (clause for clause in self.policy.clauses if isinstance(clause, CompiledTest))
        return tuple((clause.name, part) for clause in tests for part in clause.operands)


class TestedPolicies(Protocol):
    """What a run asks of a policy set."""

    @property
    def queries(self) -> Iterable[Query]:
        """Return every metric that the policies read."""
        ...

    @property
    def warnings(self) -> Sequence[Diagnostic]:
        """Return what lint says about the policies, errors aside."""
        ...

    @property
    def fleet(self) -> FleetPolicies:
        """Return the policies of workloads."""
        ...

    def governing(self, pod: PodInfo) -> TestedPolicy | None:
        """Return the policy that governs the pod, None where none does."""
        ...


class CompiledPolicies:
    """A compiled policy set."""

    def __init__(self, policy_set: PolicySet, diagnostics: Iterable[Diagnostic] = ()) -> None:
        self.policy_set = policy_set
        self.warnings = tuple(one for one in diagnostics if one.severity is Severity.WARNING)
        self._tested = {id(policy): TestedPolicy(policy) for policy in policy_set.policies}

    @property
    def queries(self) -> Iterable[Query]:
        """Return every metric that the policies read."""
        return (*self.policy_set.queries, *self.fleet.queries)

    @property
    def fleet(self) -> FleetPolicies:
        """Return the policies of workloads."""
        return self.policy_set.fleet

    def governing(self, pod: PodInfo) -> TestedPolicy | None:
        """Return the policy that governs the pod, None where none does."""
        policy = self.policy_set.governing(pod)
        return None if policy is None else self._tested[id(policy)]


@dataclass(frozen=True, slots=True)
class ClauseVerdict:
    """What one filter says, evaluated alone."""

    clause: str
    rejected: Mapping[str, tuple[str, ...]]
    """Reasons by node; a pod that is rejected as a whole is rejected on every node."""
    undefined: frozenset[str] = frozenset()
    """The nodes that it rejects because it has no value there."""
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
    verdicts: tuple[ClauseVerdict, ...] = ()
    """One for each filter that applies, in the order in which they are asked; empty unless asked for in full."""
    conjuncts: tuple[ClauseVerdict, ...] = ()
    """One for each part of the filters that are joined by `and`; empty unless asked for in full."""
    message: str = ""
    """Why it goes nowhere, in kube-scheduler's words."""
    held: str | None = None
    """Why it waits outside the active queue; None where it does not."""
    devices: tuple[str, ...] = ()
    """The devices of the host that it gets, by name; those that are shared by thousandths as RESOURCE/NUMBER."""
    device_order: DeviceOrder | None = None
    """In which the devices of the host are tried for its claims."""
    shared_devices: Mapping[str, Chosen] = field(default_factory=lambda: MappingProxyType({}))
    """The devices that it shares, by resource."""
    waits: str | None = None
    """What a pod with a node waits for; None if it does not wait."""
    domains: tuple[str, ...] = ()
    """The values of the labels of the domains that its gangs are in."""
    victims: frozenset[str] = frozenset()
    """Names of the pods that would be evicted to make room."""
    degraded: frozenset[str] = frozenset()
    """Queries that lack a fresh value on some node."""
    warnings: tuple[Warned, ...] = ()
    clusters: Mapping[str, int] | None = None
    """Of a workload: its replicas by cluster; None for a pod."""
    why: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Of a workload: by cluster, why it has so many replicas."""
    turns: tuple[str, ...] = ()
    """Names of the workload and of the others of the case, in the order in which they would be decided."""
    error: str | None = None
    """Why there is no decision at all; None where there is one."""

    @property
    def feasible(self) -> frozenset[str]:
        """Return the nodes that pass every filter."""
        return frozenset(self.totals)

    def verdict(self, clause: str) -> ClauseVerdict | None:
        """Return what a filter, or a part of one, says; None where it does not apply to the pod."""
        everything = (*self.verdicts, *self.conjuncts)
        return next((verdict for verdict in everything if verdict.clause == clause), None)

    def described(self) -> str:
        """Return where the pod goes and by how much, or why it goes nowhere, in one line."""
        if self.error is not None:
            return f"error: {self.error}"
        if self.held is not None:
            return f"held: {self.held}"
        if self.clusters is not None and self.host is not None:
            return replicas_by_cluster(self.clusters)
        if self.host is None:
            return f"unschedulable: {self.message}"
        ranked = sorted(self.totals.items(), key=lambda item: (-item[1], item[0]))
        text = f"{self.host} (score {number(self.totals[self.host])}"
        others = [item for item in ranked if item[0] != self.host]
        if others:
            text += f", next {others[0][0]} {number(others[0][1])}"
        return text + ")" + (f", and waits: {self.waits}" if self.waits is not None else "")

    def rejections(self, node: str) -> Iterator[str]:
        """Return what people read of each filter that rejects a node: its parts that do not hold, or its reasons."""
        for verdict in self.verdicts:
            if node in verdict.rejected:
                parts = [p.clause for p in self.conjuncts if p.within == verdict.clause and node in p.rejected]
                yield ", ".join(parts) if parts else f"{verdict.clause} ({', '.join(verdict.rejected[node])})"


def replicas_by_cluster(counts: Mapping[str, int]) -> str:
    """Return what people read of a placement of a workload."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no cluster"


def outcome_of(answer: Answer, policy: TestedPolicy, *, in_full: bool) -> Outcome:
    """Return what a case may expect of an answer; `in_full` also asks every filter alone."""
    inputs = answer.inputs
    frame, known = inputs.frame(), inputs.cluster.nodes.names
    nothing = Outcome(inputs.pod.name, nodes=frozenset(known), message=answer.text)
    match answer:
        case Held():
            return replace(nothing, held=answer.reason)
        case GangWaits(requirement=None):
            return replace(nothing, error=answer.text)
        case GangWaits() | NoDomain():
            return nothing
    decision, evaluation = answer.decision, inputs.evaluate()
    names = [known[row] for row in evaluation.feasible.tolist()]
    totals = dict(zip(names, evaluation.totals.tolist(), strict=True))
    best = max(totals.values(), default=0.0)
    verdicts: tuple[ClauseVerdict, ...] = ()
    conjuncts: tuple[ClauseVerdict, ...] = ()
    if in_full:
        verdicts = tuple(v for plugin in inputs.profile.filters if (v := _verdict(plugin, frame)) is not None)
        conjuncts = tuple(_verdict_of_part(part, known) for part in policy.conjuncts(frame))
    victims = decision.preemption.victims if decision.preemption is not None else ()
    return Outcome(
        pod=frame.pod.name,
        host=decision.host,
        tied=tuple(sorted(name for name, total in totals.items() if total == best)) if decision.host else (),
        nodes=frozenset(known),
        totals=totals,
        verdicts=verdicts,
        conjuncts=conjuncts,
        message=decision.message,
        waits=(answer.text or None) if isinstance(answer, Placed) else None,
        domains=tuple(domain.value for domain in answer.domains),
        victims=frozenset(pod.name for pod in victims),
        devices=names_of_devices(frame, decision),
        device_order=decision.device_order,
        shared_devices=decision.devices,
    )


def _verdict_of_part(part: Conjunct, names: Sequence[str]) -> ClauseVerdict:
    rejected = {names[int(row)]: (f"{part.name} does not hold",) for row in np.flatnonzero(~part.holds)}
    return ClauseVerdict(part.name, rejected, within=part.clause)


def _verdict(plugin: FilterPlugin, frame: Frame) -> ClauseVerdict | None:
    names = frame.cluster.nodes.names
    asked = probe(frame, plugin)
    if not asked.applies:
        return None
    rejected: dict[str, tuple[str, ...]] = {}
    for reason, where in asked.reasons():
        for row in np.flatnonzero(where):
            rejected[names[row]] = (*rejected.get(names[row], ()), reason)
    missing = undefined_nodes(plugin, frame)
    undefined = frozenset(names[row] for row in np.flatnonzero(missing)) if missing is not None else frozenset[str]()
    return ClauseVerdict(plugin.name, rejected, undefined)
