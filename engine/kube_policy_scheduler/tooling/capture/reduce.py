"""A decision in the smallest cluster that repeats it: what must be the same, the parts, and delta debugging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.decide.device_columns import names_of_devices
from kube_policy_scheduler.framework.evaluate.evaluation import Evaluation
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.framework.reserve.claims_in_memory import make_claims
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.policy.answer import GangWaits, Held, NoDomain, Placed, answer
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.why.devices import claim_state, unmet_on_nodes
from kube_policy_scheduler.tooling.why.filters import Rejections, rejections
from kube_policy_scheduler.wording import plural

Item = TypeVar("Item")


def minimised(items: Sequence[Item], holds: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Return a part of the items, in their order, for which `holds` says yes and of which no single item can go.

    `holds` is taken to say yes for all items; it is asked at most about n² times, mostly about n log n.
    """
    left = list(items)
    if left and holds([]):
        return []
    pieces = 2
    while len(left) > 1:
        size = -(-len(left) // pieces)
        cut = [left[start : start + size] for start in range(0, len(left), size)]
        smaller = next((part for part in cut if len(part) < len(left) and holds(part)), None) if pieces == 2 else None
        if smaller is not None:
            left, pieces = smaller, 2
            continue
        for at in reversed(range(len(cut))):  # those that matter least stand last
            without = [item for index, part in enumerate(cut) if index != at for item in part]
            if len(cut) > 1 and holds(without):
                left, pieces = without, max(len(cut) - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(len(left), pieces * 2)
    return left


def grown(items: Sequence[Item], holds: Callable[[Sequence[Item]], bool], *, first: int) -> list[Item]:
    """Return the shortest beginning of the items that `holds`, among those of `first`, twice, four times as many, …

    Where what matters stands at the beginning, this is much quicker than to begin with everything.
    """
    size = max(first, 1)
    while size < len(items):
        if holds(items[:size]):
            return list(items[:size])
        size *= 2
    return list(items)


_MOST_EXPLAINED = 64
"""Nodes up to which the main reason is asked for: it takes every filter alone."""
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class DecisionSummary:
    """One decision."""

    host: str | None
    next: str | None
    """The best of the other nodes that fit."""
    margin: float | None
    """By how much the host's total exceeds that of `next`, rounded; None where nothing was compared."""
    rejectors: frozenset[str]
    """The filters that are the first to reject some node, or that reject the pod."""
    cause: str | None = None
    """The filter that stands most in the way of a pod that fits nowhere; None where that was not asked."""
    governed: bool = True
    """Whether the policy governs the pod: a test asks that before it decides."""
    held: str | None = None
    """Why the pod waits outside the active queue, or its gang cannot start."""
    waits: str = ""
    """What it waits for on the host: members of its gang; "" if it need not."""
    domain: str | None = None
    """What is asked of its gang, if no domain has room for it."""
    evicted: tuple[str, ...] = ()
    """Pods that would be evicted, and from where."""
    devices: tuple[str, ...] = ()
    """Those that the pod gets on the host."""
    lacks: frozenset[str] = frozenset()
    """Why its claims cannot be allocated, on any node: a missing claim is another reason than a large one."""
    unmet: frozenset[tuple[str, frozenset[str]]] | None = None
    """Each request that too few devices meet, and the kinds of reasons; None where that was not asked."""
    empty: bool = False
    """Whether there was no node to decide about: that is a reason of its own."""
    statuses: frozenset[tuple[str, str, tuple[str, ...]]] | None = None
    """Node, filter and reasons of each rejection; None where that was not asked."""

    @property
    def tied(self) -> bool:
        """Return whether the host was drawn among equals."""
        return self.margin == 0

    def repeats(self, other: DecisionSummary, *, margin: bool, nodes: bool = False) -> bool:
        """Return whether two decisions are the same.

        Args:
            other: the other decision.
            margin: also by how much it was the best node.
            nodes: also why each node is rejected; both are of the same nodes.
        """
        mine, theirs = self, other
        if not nodes:
            mine, theirs = replace(mine, statuses=None), replace(theirs, statuses=None)
        if mine.cause is None or theirs.cause is None:
            mine, theirs = replace(mine, cause=None, unmet=None), replace(theirs, cause=None, unmet=None)
        if not margin and mine.margin is not None and theirs.margin is not None and mine.tied is theirs.tied:
            mine = replace(mine, margin=theirs.margin)
        return mine == theirs


def verdict(inputs: DecisionInputs) -> DecisionSummary:
    """Decide, and return what a smaller world has to repeat."""
    policy = inputs.rules.policy
    if policy is not None and not policy.governs(inputs.frame()):
        return DecisionSummary(None, None, None, frozenset(), governed=False)
    found = answer(inputs)
    if isinstance(found, Held | GangWaits):
        return DecisionSummary(
            None, None, None, frozenset(), held=found.reason if isinstance(found, Held) else found.text
        )  # fmt: skip
    if isinstance(found, NoDomain):
        return DecisionSummary(None, None, None, frozenset(), domain=str(found.requirements[0]))
    inputs, decision = found.inputs, found.decision
    frame, made = inputs.frame(), inputs.evaluate()
    waits = found.text if isinstance(found, Placed) else ""
    rejectors = first_rejectors(made)
    size, names = frame.cluster.nodes.size, frame.cluster.nodes.names
    statuses = _statuses(made, names) if size <= _MOST_EXPLAINED else None
    if decision.host is None:
        evicted: tuple[str, ...] = ()
        if decision.preemption is not None and decision.preemption.victims:
            evicted = (
                str(decision.preemption.nominated_node),
                *sorted(pod.key for pod in decision.preemption.victims),
            )
        cause = _cause(rejections(inputs)) if size <= _MOST_EXPLAINED else None
        return DecisionSummary(
            None,
            None,
            None,
            rejectors,
            cause=cause,
            evicted=evicted,
            lacks=_lacks(made),
            unmet=_unmet(frame) if size <= _MOST_EXPLAINED else None,
            empty=not size,
            statuses=statuses,
        )
    devices = names_of_devices(frame, decision)
    totals = sorted((-float(total), names[row]) for row, total in zip(made.feasible, made.totals, strict=True))
    best = next(total for total, name in totals if name == decision.host)
    following = next(((total, name) for total, name in totals if name != decision.host), None)
    if following is None:
        return DecisionSummary(
            decision.host, None, None, rejectors, devices=devices, statuses=statuses, waits=waits
        )  # fmt: skip
    margin = round(following[0] - best, _DIGITS) + 0.0
    return DecisionSummary(
        decision.host, following[1], margin, rejectors, devices=devices, statuses=statuses, waits=waits
    )  # fmt: skip


def _lacks(made: Evaluation) -> frozenset[str]:
    rejection, name = made.diagnosis.rejection, DynamicResources.name
    statuses = (rejection,) if rejection is not None else made.diagnosis.statuses()
    return frozenset(reason for status in statuses if status.plugin == name for reason in status.reasons)


def _unmet(frame: Frame) -> frozenset[tuple[str, frozenset[str]]]:
    state = claim_state(frame)
    on_nodes = unmet_on_nodes(frame, state).values() if state is not None else ()
    return frozenset((one.request.full_name, one.obstacles) for each in on_nodes for one in each.unmet)


def first_rejectors(made: Evaluation) -> frozenset[str]:
    """Return the filters that are the first to reject some node, or that reject the pod as a whole."""
    diagnosis = made.diagnosis
    if diagnosis.rejection is not None:
        return frozenset((diagnosis.rejection.plugin,))
    return frozenset(diagnosis.plugins[index] for index in np.unique(diagnosis.first) if index >= 0)


def _statuses(made: Evaluation, names: Sequence[str]) -> frozenset[tuple[str, str, tuple[str, ...]]]:
    found = zip(names, made.diagnosis.statuses(), strict=True)
    return frozenset((name, status.plugin, tuple(status.reasons)) for name, status in found if status.plugin)


def _cause(asked: Rejections) -> str | None:
    """Return the name of the main reason: that of a policy's clause where one says it."""
    main = asked.dominant()
    units = [unit for unit in asked.units if unit.obstacle == main and unit.rejected.any()]
    return next((unit.name for unit in units if unit.span is not None), units[0].name if units else None)


@dataclass(frozen=True, slots=True)
class ReducibleInputs:
    """Everything that one decision is made from."""

    pod: objects.Pod
    """As it waits."""
    nodes: tuple[objects.Node, ...]
    placed: tuple[objects.Pod, ...]
    """Pods that are on nodes, or nominated to them."""
    others: tuple[Any, ...]
    rules: Rules
    signals: Signals = Signals.EMPTY
    now: float = 0.0
    """Unix seconds."""
    seed: int = 0
    trials: list[int] = field(default_factory=lambda: [0], compare=False)
    """How many decisions were made so far; shared by all parts of one decision."""
    kubernetes: KubernetesRules = DEFAULT_RULES
    pending: tuple[objects.Pod, ...] | None = None
    """The pods that wait beside it; None: not known, as in a test, which has none."""

    @classmethod
    def of(cls, things: Iterable[Any], pod: objects.Pod, rules: Rules, *, seed: int, now: float) -> ReducibleInputs:
        """Return the decision that API objects make; pods that are done are not part of it."""
        nodes: list[objects.Node] = []
        placed: list[objects.Pod] = []
        pending: list[objects.Pod] = []
        others: list[Any] = []
        for thing in things:
            match thing:
                case objects.Node():
                    nodes.append(thing)
                case objects.Pod():
                    if thing.status.phase in ("Succeeded", "Failed") or thing is pod:
                        continue
                    if _node_of(thing):
                        placed.append(thing)
                    if not thing.spec.node_name:
                        pending.append(thing)
                case _:
                    others.append(thing)
        nodes.sort(key=lambda node: node.metadata.name)
        placed.sort(key=lambda one: (one.metadata.namespace, one.metadata.name))
        return cls(pod, tuple(nodes), tuple(placed), tuple(others), rules, seed=seed, now=now, pending=tuple(pending))

    def with_nodes(self, kept: Sequence[objects.Node]) -> ReducibleInputs:
        """Return the decision with some of the nodes, and the pods on them."""
        names = {node.metadata.name for node in kept}
        placed = tuple(pod for pod in self.placed if _node_of(pod) in names)
        return replace(self, nodes=tuple(kept), placed=placed)

    def with_placed(self, kept: Sequence[objects.Pod]) -> ReducibleInputs:
        """Return the decision with some of the pods."""
        return replace(self, placed=tuple(kept))

    def with_others(self, kept: Sequence[Any]) -> ReducibleInputs:
        """Return the decision with some of the other objects."""
        return replace(self, others=tuple(kept))

    def alone(self) -> ReducibleInputs:
        """Return the decision where nobody knows of pods that wait, as in a test."""
        return replace(self, pending=None)

    def inputs(self) -> DecisionInputs:
        """Return the decision to be made."""
        made = cluster_state((*self.others, *self.nodes, *self.placed), self.kubernetes).cluster
        make_claims(made, self.pod)
        pending = Pending(map(made.templates.pod, self.pending)) if self.pending is not None else None
        return DecisionInputs.of(
            self.pod, made, self.rules, signals=self.signals, now=self.now, seed=self.seed, pending=pending
        )  # fmt: skip

    def verdict(self) -> DecisionSummary:
        """Decide."""
        self.trials[0] += 1
        return verdict(self.inputs())

    def by_relevance(self) -> tuple[list[objects.Node], int]:
        """Return the nodes with those first that probably matter, and how many these are.

        These are the host and the next node, for each score the nodes that it likes most and least, as these define
        a normalised score, for each filter one node that it rejects, and for the main reason of a pod that fits
        nowhere a node on which nothing else is in the way.
        """
        inputs = answer(self.inputs()).inputs
        asked = rejections(inputs)
        made = asked.evaluation
        table = inputs.cluster.nodes
        rows: dict[int, None] = {}
        chosen = self.verdict()
        for name in (chosen.host, chosen.next, chosen.evicted[0] if chosen.evicted else None):
            if name is not None:
                rows[table.rows[name]] = None
        diagnosis = made.diagnosis
        for index in range(len(diagnosis.plugins)):
            rejected = np.flatnonzero(diagnosis.first == index)
            if len(rejected):
                rows[_first_by_name(rejected.tolist(), table.names)] = None
        main = asked.dominant() if chosen.host is None else None
        if main is not None:
            alone = asked.obstacles[main] & (asked.count == 1) if main in asked.obstacles else np.zeros(0, np.bool_)
            found = np.flatnonzero(alone).tolist()
            rows.update(dict.fromkeys([_first_by_name(found, table.names)] if found else asked.nearest(1)))
        if len(made.feasible):
            for scores in made.scores.values():
                rows[int(made.feasible[int(np.argmin(scores))])] = None
                rows[int(made.feasible[int(np.argmax(scores))])] = None
        first = len(rows)
        ranked = made.feasible[np.argsort(-made.totals, kind="stable")].tolist() if len(made.feasible) else []
        rows.update(dict.fromkeys(int(row) for row in ranked))
        rows.update(dict.fromkeys(asked.nearest(table.size)))
        return [table.infos[row].node for row in rows], first


def _first_by_name(rows: Sequence[int], names: Sequence[str]) -> int:
    return min(rows, key=lambda row: names[row])


def _node_of(pod: objects.Pod) -> str:
    return pod.spec.node_name or pod.status.nominated_node_name


Progress = Callable[[str], None]
"""Called before each trial with what is tried."""
FEW_NODES = 24
"""More nodes than these are too many for a test that people read: then the margin may become another."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of a decision."""

    reducible: ReducibleInputs
    verdict: DecisionSummary
    same_margin: bool
    """Whether the best node is as far ahead as it was."""


def reduced(reducible: ReducibleInputs, *, progress: Progress = lambda text: None) -> Reduced:
    """Return the smallest inputs found with the same decision.

    The same is: the same node, with the same one next to it and as far ahead, or the same main reason; and each
    filter that rejected any node still rejects one. Where that takes more than a few nodes, how far ahead may change.
    """
    wanted = reducible.verdict()
    same_margin = True

    def same(part: ReducibleInputs) -> bool:
        progress(
            f"{plural(len(part.nodes), 'node')}, {plural(len(part.placed), 'pod')}: trial {reducible.trials[0] + 1}"
        )
        return part.verdict().repeats(wanted, margin=same_margin)

    ordered, first = reducible.by_relevance()
    left = _fewer_nodes(reducible, ordered, same, first=first)
    if len(left.nodes) > FEW_NODES and wanted.margin:
        same_margin = False
        left = _fewer_nodes(reducible, ordered, same, first=first)
    left = _fewer_others(left, same)
    left = _fewer_pods(left, same)
    if len(left.nodes) > 1:  # what only counted for a pod that is gone by now
        left = left.with_nodes(minimised(left.nodes, lambda part: same(left.with_nodes(part))))
    return Reduced(left, left.verdict(), same_margin)


def _fewer_nodes(
    reducible: ReducibleInputs, ordered: Sequence[objects.Node], same: Callable[[ReducibleInputs], bool], *, first: int
) -> ReducibleInputs:
    def holds(part: Sequence[objects.Node]) -> bool:
        return same(reducible.with_nodes(part))

    return reducible.with_nodes(minimised(grown(ordered, holds, first=first), holds))


def _fewer_others(reducible: ReducibleInputs, same: Callable[[ReducibleInputs], bool]) -> ReducibleInputs:
    kinds: dict[str, list[Any]] = {}
    for thing in reducible.others:
        kinds.setdefault(type(thing).__name__, []).append(thing)
    kept = minimised(
        list(kinds.values()), lambda part: same(reducible.with_others([thing for group in part for thing in group]))
    )
    flat = [thing for group in kept for thing in group]
    return reducible.with_others(minimised(flat, lambda part: same(reducible.with_others(part))))


def _fewer_pods(reducible: ReducibleInputs, same: Callable[[ReducibleInputs], bool]) -> ReducibleInputs:
    """Leave out all pods of a node first, then single ones."""
    groups: dict[str, list[objects.Pod]] = {}
    for pod in reducible.placed:
        groups.setdefault(pod.spec.node_name or pod.status.nominated_node_name, []).append(pod)
    kept = minimised(
        list(groups.values()), lambda part: same(reducible.with_placed([pod for group in part for pod in group]))
    )
    flat = [pod for group in kept for pod in group]
    return reducible.with_placed(minimised(flat, lambda part: same(reducible.with_placed(part))))
