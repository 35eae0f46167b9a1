"""Which filter rejects which nodes, alone and by its parts; what the closest nodes lack; what limits leave. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.cluster.taints import TaintKey, tolerated
from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.framework.devices.allocator import NoDevices
from kube_policy_scheduler.framework.evaluate.evaluation import Evaluation
from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.dynamic_resources import NOT_AVAILABLE, DynamicResources
from kube_policy_scheduler.framework.plugins.node_affinity import NodeAffinity
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.plugins.node_unschedulable import NodeUnschedulable
from kube_policy_scheduler.framework.plugins.taint_toleration import TaintToleration
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.checked import Quota
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, CompiledTest
from kube_policy_scheduler.lang.types import BYTES
from kube_policy_scheduler.policy.clauses import LimitClause, PolicyClause, is_limited
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.tooling.why.devices import are_elsewhere, claim_state, claims_on, unmet_on_nodes
from kube_policy_scheduler.tooling.why.scores import amount_text, leaves, part_values, shown
from kube_policy_scheduler.wording import plural

RESOURCES = "NodeResourcesFit"


@dataclass(frozen=True, slots=True, eq=False)
class FilterVerdict:
    """One filter, or one operand of a policy filter's `and`."""

    name: str
    span: Span | None
    """Where the policy says so; None for Kubernetes' own rules."""
    rejected: BoolArray
    """`bool[nodes]`: evaluated alone."""
    first: BoolArray
    """`bool[nodes]`: rejected by this one, and by none that is asked before it."""
    reasons: tuple[tuple[str, BoolArray], ...]
    within: str = ""
    """The filter of which it is a part."""
    whole: bool = False
    """Whether it rejects the pod itself, whatever the node."""
    obstacle: str = ""
    """Rejectors of one obstacle are one thing to the reader."""
    clause: CompiledClause | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Rejections:
    """What all filters say."""

    frame: Frame
    evaluation: Evaluation
    filters: tuple[FilterVerdict, ...]
    """One per filter that has something to say."""
    units: tuple[FilterVerdict, ...]
    """The same with filters taken apart where they are joined by `and`."""
    obstacles: dict[str, BoolArray]
    """`bool[nodes]` by obstacle."""
    count: IntArray
    """`int64[nodes]`: obstacles on each node."""

    def only(self, obstacle: str) -> int:
        """Return how many nodes no other filter rejects."""
        return int((self.obstacles[obstacle] & (self.count == 1)).sum())

    def dominant(self) -> str | None:
        """Return the obstacle that stands most often between the pod and the nodes that are closest to fitting."""
        whole = next((unit for unit in self.units if unit.whole), None)
        if whole is not None:
            return whole.obstacle
        if not self.obstacles or not self.frame.cluster.nodes.size:
            return None
        closest = self.count == self.count.min()
        ranked = {name: (-int((mask & closest).sum()), -int(mask.sum())) for name, mask in self.obstacles.items()}
        return min(ranked, key=ranked.__getitem__)

    def nearest(self, limit: int) -> list[int]:
        """Return the rows with the fewest obstacles, those that lack the smallest share of a resource first."""
        shortage = _shortage(self.frame)
        names = self.frame.cluster.nodes.names
        order = sorted(range(len(names)), key=lambda row: (int(self.count[row]), float(shortage[row]), names[row]))
        return order[:limit]


def _shortage(frame: Frame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return `float64[nodes]`: what is short of the pod's requests, as shares of these, added up."""
    nodes = frame.cluster.nodes
    total = np.zeros(nodes.size)
    for resource, amount in frame.template.requests.items():
        if amount > 0:
            total += np.clip(amount - (nodes.allocatable(resource) - nodes.requested(resource)), 0, None) / amount
    state = claim_state(frame)
    if state is not None and state.unallocated:
        for row, lacks in unmet_on_nodes(frame, state).items():
            total[row] += lacks.shortage
    return total


def rejections(inputs: DecisionInputs) -> Rejections:
    """Ask every filter alone, and all together by `evaluate`."""
    frame = inputs.frame()
    size = frame.cluster.nodes.size
    evaluation = inputs.evaluate()
    diagnosis = evaluation.diagnosis
    filters: list[FilterVerdict] = []
    units: list[FilterVerdict] = []
    by_pre_filter = evaluation.pre_filtered.rejection
    for plugin in inputs.profile.filters:
        asked = probe(frame, plugin)
        if not asked.applies:
            continue
        reasons = tuple((reason, where) for reason, where in asked.reasons() if where.any() or asked.rejection)
        rejected = np.zeros(size, np.bool_)
        for _, where in reasons:
            rejected |= where
        whole = asked.rejection is not None
        first = np.zeros(size, np.bool_)
        if by_pre_filter is not None:
            first[:] = by_pre_filter.plugin == plugin.name
        else:
            narrowed = plugin.name in evaluation.pre_filtered.narrowed_by[:1]
            mine = [index for index, name in enumerate(diagnosis.plugins) if name == plugin.name]
            alike = [other for other in inputs.profile.filters if other.name == plugin.name]
            if len(alike) > 1:  # clauses of one name are in the order of evaluation
                at = alike.index(plugin)
                mine = mine[at : at + 1]
            for index in (*mine, *(i for i, name in enumerate(diagnosis.plugins) if narrowed and not name)):
                first |= diagnosis.first == index
        clause = plugin.clause if isinstance(plugin, PolicyClause) else None
        span = clause.span if clause is not None else None
        one = FilterVerdict(
            plugin.name, span, rejected, first, reasons, whole=whole, obstacle=plugin.name, clause=clause
        )
        filters.append(one)
        units.extend(_operands(one, frame))
        if not units or not units[-1].within or units[-1].clause is not clause:
            units.append(_unit(one))
    obstacles: dict[str, BoolArray] = {}
    for unit in units:
        if unit.rejected.any():
            before = obstacles.get(unit.obstacle)
            obstacles[unit.obstacle] = unit.rejected if before is None else before | unit.rejected
    count: IntArray = np.zeros(size, np.int64)
    for mask in obstacles.values():
        count += mask
    return Rejections(frame, evaluation, tuple(filters), tuple(units), obstacles, count)


def _unit(one: FilterVerdict) -> FilterVerdict:
    obstacle = one.obstacle
    if one.clause is not None:
        tree = one.clause.checked
        obstacle = _obstacle(tree.value, f"{one.name} {one.span}") if isinstance(tree, checked.Test) else obstacle
    return FilterVerdict(
        one.name, one.span, one.rejected, one.first, one.reasons, whole=one.whole, obstacle=obstacle, clause=one.clause
    )


def _operands(one: FilterVerdict, frame: Frame) -> Iterator[FilterVerdict]:
    """Return the operands of a filter's `and`, each where the filter rejects and it does not hold."""
    if not isinstance(one.clause, CompiledTest) or not one.clause.nodes:
        return
    taken = np.zeros(frame.size, np.bool_)
    for operand in one.clause.operands:
        fails: BoolArray = one.rejected & ~operand.holds(frame)
        name, span = operand.text, operand.tree.span
        first: BoolArray = one.first & fails & ~taken
        taken |= fails
        yield FilterVerdict(
            name,
            span,
            fails,
            first,
            ((f"{name} does not hold", fails),),
            within=one.name,
            obstacle=_obstacle(operand.tree, f"{name} {span}"),
            clause=one.clause,
        )


def _obstacle(value: typed.Typed, name: str) -> str:
    return value.builtin.words.plugin or name if isinstance(value, typed.Apply) else name


HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A node that does not fit, and all that it lacks."""

    node: str
    obstacles: int
    lacks: tuple[str, ...]


def near_misses(asked: Rejections, rows: list[int]) -> tuple[NearMiss, ...]:
    """Return what the nodes in these rows lack."""
    names = asked.frame.cluster.nodes.names
    return tuple(NearMiss(names[row], int(asked.count[row]), tuple(_lacks(asked, row))) for row in rows)


def _lacks(asked: Rejections, row: int) -> Iterator[str]:
    resources_said = any(unit.name == RESOURCES and unit.rejected[row] for unit in asked.units)
    for unit in asked.units:
        if not unit.rejected[row]:
            continue
        if unit.obstacle == RESOURCES and unit.name != RESOURCES and resources_said:
            continue
        yield from _one(unit, asked.frame, row)


def _one(unit: FilterVerdict, frame: Frame, row: int) -> Iterator[str]:
    if unit.clause is not None:
        yield _of_clause(unit, frame, row)
        return
    match unit.name:
        case NodeResourcesFit.name:
            yield from _resources(frame, row)
        case TaintToleration.name:
            for taint in untolerated(frame, row):
                yield f"has the taint {taint_text(taint)}, which the pod does not tolerate"
        case NodeUnschedulable.name:
            yield "is cordoned"
        case NodeAffinity.name:
            yield from _affinity(frame, row)
        case DynamicResources.name if not unit.whole:
            state = claim_state(frame)
            lacks = claims_on(frame, state, row) if state is not None and not are_elsewhere(frame, state, row) else None
            if lacks is not None:
                yield from lacks.sentences()
            else:
                yield "; ".join(plain(reason) for reason, where in unit.reasons if where[row])
        case _:
            yield "; ".join(plain(reason) for reason, where in unit.reasons if where[row])


def _of_clause(unit: FilterVerdict, frame: Frame, row: int) -> str:
    assert unit.clause is not None
    assert unit.span is not None
    clause = unit.clause
    reasons = [reason for reason, where in unit.reasons if where[row]]
    if unit.whole or not hasattr(clause, "nodes"):
        return "; ".join(reasons)
    alone = frame.at(np.array([row], np.int64))
    inside = (unit.span.start, unit.span.end)
    values = [
        f"{value.text} is {value.texts()[0]}"
        for value in part_values(leaves(clause, inside), alone, [0])
        if value.text != unit.name
    ]
    head = f"`{unit.name}` does not hold"
    return f"{head}: {', '.join(values)}" if values else head


def _resources(frame: Frame, row: int) -> Iterator[str]:
    nodes = frame.cluster.nodes
    if nodes.pod_count[row] >= nodes.allocatable("pods")[row]:
        yield f"has its {plural(int(nodes.allocatable('pods')[row]), 'pod')}"
    for resource, amount in frame.template.requests.items():
        offered = int(nodes.allocatable(resource)[row])
        free = offered - int(nodes.requested(resource)[row])
        if free < amount and resource != "pods":
            missing, have = amount_text(resource, amount - free), amount_text(resource, free)
            yield f"needs {missing} more {resource}: {have} of {amount_text(resource, offered)} free"


def _affinity(frame: Frame, row: int) -> Iterator[str]:
    spec, labels = frame.template.spec, frame.cluster.nodes.infos[row].labels
    wrong = [(key, value) for key, value in sorted((spec.node_selector or {}).items()) if labels.get(key) != value]
    for key, value in wrong:
        has = f"it is {labels[key]}" if key in labels else "it does not have the label"
        yield f"needs label {key}={value}: {has}"
    if not wrong:
        yield "does not match the pod's required node affinity"


def untolerated(frame: Frame, row: int) -> list[TaintKey]:
    """Return the hard taints of a node that the pod does not tolerate."""
    given = frame.template.spec.tolerations or ()
    taints = (TaintKey(t.key, t.value, t.effect) for t in frame.cluster.nodes.infos[row].taints)
    return [taint for taint in taints if taint.effect in HARD and not tolerated(given, taint)]


def taint_text(taint: TaintKey) -> str:
    """Return a taint as `kubectl taint` writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


_PLAIN = {
    "Too many pods": "too many pods",
    "node(s) were unschedulable": "cordoned",
    "node(s) had untolerated taint(s)": "a taint that the pod does not tolerate",
    "node(s) didn't match Pod's node affinity/selector": "not matched by the pod's node selector or affinity",
    "node(s) didn't have free ports for the requested pod ports": "a host port that is in use",
    "node(s) didn't match pod topology spread constraints": "the topology spread constraint of the pod",
    "node(s) didn't match pod affinity rules": "the required pod affinity of the pod",
    "node(s) didn't match pod anti-affinity rules": "the required pod anti-affinity of the pod",
    "node(s) didn't satisfy existing pods anti-affinity rules": "the anti-affinity of a running pod",
    "node(s) didn't match the requested node name": "not the node in spec.nodeName",
    "node(s) exceed max volume count": "no more volumes can be attached",
    NoDevices.CANNOT_ALLOCATE: "the devices that it claims cannot be allocated",
    NOT_AVAILABLE: "the devices that its claims have are not there",
}


_PLAIN_BEGINNINGS = {
    "Insufficient ": "too little free {}",
    "node(s) didn't match policy clause ": "`{}` does not hold",
    "pod is rejected by policy clause ": "`{}` rejects the pod",
    "pod is held by policy clause ": "`{}` holds the pod",
}


def plain(reason: str) -> str:
    """Return a reason as Events have it in plain words."""
    for beginning, words in _PLAIN_BEGINNINGS.items():
        if reason.startswith(beginning):
            return words.format(reason.removeprefix(beginning))
    return _PLAIN.get(reason, reason)


@dataclass(frozen=True, slots=True)
class LimitState:
    """One limit at one moment."""

    clause: str
    place: str
    key: str | None
    """Whose it is; None: of the pods without a key."""
    used: float
    adds: float
    """What the pod counts for."""
    most: float
    bytes: bool

    def sentence(self) -> str:
        """Return it in one sentence, without an end."""
        used, adds, most = (shown(value, as_bytes=self.bytes) for value in (self.used, self.adds, self.most))
        whose = f"{self.key} has" if self.key is not None else "pods without a key have"
        return f"`{self.clause}` ({self.place}): {whose} {used} of {most}, and this pod adds {adds}"


def limits(frame: Frame, profile: Profile) -> Iterator[LimitState]:
    """Yield the limits that concern a pod, on the cluster without it."""
    for plugin in profile.filters:
        if not isinstance(plugin, LimitClause):
            continue
        clause = plugin.clause
        if not is_limited(clause, frame):
            continue
        assert isinstance(clause.checked, Quota)
        measure = clause.checked.measure
        used, adds, most = plugin.usage(frame)
        in_bytes = measure is not None and measure.info.type.unit.same_dimension(BYTES)
        key = clause.key(frame) if clause.key is not None else "the cluster"
        yield LimitState(clause.text, str(clause.span), key and str(key), used, adds, most, in_bytes)
