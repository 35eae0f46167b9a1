"""What one node lacks for a pod, refuser by refuser, in plain words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster.taints import TaintKey, tolerated
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.node_affinity import NodeAffinity
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.plugins.node_unschedulable import NodeUnschedulable
from kube_policy_scheduler.framework.plugins.taint_toleration import TaintToleration
from kube_policy_scheduler.tooling.why.filters import RESOURCES, Refusals, Refuser
from kube_policy_scheduler.tooling.why.values import amount_text, leaves, part_values

HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Near:
    """A node that does not fit, and all that it lacks."""

    node: str
    obstacles: int
    lacks: tuple[str, ...]


def near(asked: Refusals, rows: list[int]) -> tuple[Near, ...]:
    """Return what the nodes in these rows lack."""
    names = asked.frame.cluster.nodes.names
    return tuple(Near(names[row], int(asked.count[row]), tuple(_lacks(asked, row))) for row in rows)


def _lacks(asked: Refusals, row: int) -> Iterator[str]:
    resources_said = any(unit.name == RESOURCES and unit.refused[row] for unit in asked.units)
    for unit in asked.units:
        if not unit.refused[row]:
            continue
        if unit.obstacle == RESOURCES and unit.name != RESOURCES and resources_said:
            continue
        yield from _one(unit, asked.frame, row)


def _one(unit: Refuser, frame: Frame, row: int) -> Iterator[str]:
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
        case _:
            yield "; ".join(plain(reason) for reason, where in unit.reasons if where[row])


def _of_clause(unit: Refuser, frame: Frame, row: int) -> str:
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
        yield f"has its {int(nodes.allocatable('pods')[row])} pods"
    for resource, amount in frame.template.requests.items():
        offered = int(nodes.allocatable(resource)[row])
        free = offered - int(nodes.requested(resource)[row])
        if free < amount and resource != "pods":
            missing, have = amount_text(resource, amount - free), amount_text(resource, free)
            yield f"{missing} {resource} too little: {have} of {amount_text(resource, offered)} free"


def _affinity(frame: Frame, row: int) -> Iterator[str]:
    spec, labels = frame.template.spec, frame.cluster.nodes.infos[row].labels
    wrong = [(key, value) for key, value in sorted((spec.node_selector or {}).items()) if labels.get(key) != value]
    for key, value in wrong:
        has = f"it is {labels[key]}" if key in labels else "it has no such label"
        yield f"label {key}={value} is wanted: {has}"
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
    "Too many pods": "no room for one more pod",
    "node(s) were unschedulable": "cordoned",
    "node(s) had untolerated taint(s)": "a taint that the pod does not tolerate",
    "node(s) didn't match Pod's node affinity/selector": "not matched by the pod's node selector or affinity",
    "node(s) didn't have free ports for the requested pod ports": "a host port that is taken",
    "node(s) didn't match pod topology spread constraints": "one pod too many there for the pod's spread",
    "node(s) didn't match pod affinity rules": "not near the pods that the pod's affinity asks for",
    "node(s) didn't match pod anti-affinity rules": "pods there that the pod's anti-affinity keeps away from",
    "node(s) didn't satisfy existing pods anti-affinity rules": "pods there that keep this one away by anti-affinity",
    "node(s) didn't match the requested node name": "not the node that the pod names",
    "node(s) exceed max volume count": "no more volumes can be attached",
}


_PLAIN_BEGINNINGS = {
    "Insufficient ": "too little free {}",
    "node(s) didn't match policy clause ": "`{}` does not hold",
    "pod is refused by policy clause ": "`{}` refuses the pod",
    "pod is held by policy clause ": "`{}` holds the pod",
}


def plain(reason: str) -> str:
    """Return a reason as Events have it in plain words."""
    for beginning, words in _PLAIN_BEGINNINGS.items():
        if reason.startswith(beginning):
            return words.format(reason.removeprefix(beginning))
    return _PLAIN.get(reason, reason)
