"""What can be varied in the world of a case so that a policy decides otherwise: found by looking at what it reads.

A world is a choice of one value for each gene; `tooling.first_test.scene` makes nodes and pods of it. The
values come from the policy's own constants, one on each side of every number that is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind, values_of
from kube_policy_scheduler.lang.types import Depends, Shape
from kube_policy_scheduler.tooling.first_test.values import DOMAINS, REGION, SHARED, ZONE, Place, Values, texts_of

_NODE_LABELS = {
    "node.zone": ZONE,
    "node.region": REGION,
    "node.arch": "kubernetes.io/arch",
    "node.os": "kubernetes.io/os",
}
_DEVICES: tuple[Place, ...] = (
    ("node", "resource", "nvidia.com/gpu"),
    ("node", "resource", "nvidia.com/gpu-milli"),
    ("pod", "request", "nvidia.com/gpu"),
    ("pod", "request", "nvidia.com/gpu-milli"),
    ("pods", "request", "nvidia.com/gpu"),
    ("pods", "request", "nvidia.com/gpu-milli"),
    ("pods", "count"),
    ("pods", "where"),
)
"""What functions about devices read, where they name no resource."""
_RULES = {
    "fits": ("cpu", "memory"),
    "least_allocated": ("cpu", "memory"),
    "most_allocated": ("cpu", "memory"),
    "balanced": ("cpu", "memory"),
}


@dataclass(frozen=True, slots=True)
class Gene:
    """One thing that can differ."""

    place: Place
    values: tuple[Any, ...]
    """The first is the default."""


class Genes:
    """The genes of a policy, and which of them an expression reads."""

    def __init__(self, policy: CheckedPolicy) -> None:
        self._roots = tuple(value for clause in policy.clauses for value in values_of(clause))
        if policy.governs is not None:
            self._roots = (policy.governs, *self._roots)
        self._every = tuple(part for root in self._roots for part in typed.below(root))
        self.topologies = frozenset(
            clause.topology for clause in policy.clauses if isinstance(clause, checked.Grouping) and clause.topology
        )
        values = Values(self._every, self._compared(), self.topologies)
        places: dict[Place, None] = {}
        for root in self._roots:
            places.update(dict.fromkeys(self.read_by(root)))
        for clause in policy.clauses:
            places.update(dict.fromkeys(self.of_clause(clause)))
        places.update({("pod", "request", "cpu"): None, ("all", "use"): None})
        self.genes: Mapping[Place, Gene] = {place: Gene(place, values.of(place)) for place in places}

    def default(self) -> dict[Place, Any]:
        """Return the world in which every gene has its default."""
        return {place: gene.values[0] for place, gene in self.genes.items()}

    def of_clause(self, clause: checked.Clause) -> tuple[Place, ...]:
        """Return the genes that a clause as a whole reads, its expressions aside."""
        found: list[Place] = []
        if clause.kind in (ClauseKind.SPREAD, ClauseKind.PACK, ClauseKind.LIMIT):
            found += [("pods", "count"), ("pods", "request", "cpu"), ("pods", "where")]
            read = [place for value in values_of(clause) for place in self.read_by(value)]
            found += [("pods", *place[1:]) for place in read if place[:2] in SHARED]
            if isinstance(clause, checked.Grouping) and clause.topology:
                found.append(("node", "label", clause.topology))
        if clause.kind is ClauseKind.PREEMPT:
            found += [
                ("all", "use"),
                ("pods", "count"),
                ("pods", "where"),
                ("pod", "priority"),
                ("pod", "request", "cpu"),
            ]
            found.append(("pods", "request", "cpu"))
        return tuple(dict.fromkeys(place for place in found if place[:2] != ("pods", "priority")))

    def read_by(self, value: typed.Typed) -> tuple[Place, ...]:
        """Return the genes that an expression reads."""
        found: dict[Place, None] = {}
        for part in typed.below(value):
            found.update(dict.fromkeys(self._places(part)))
        return tuple(found)

    # --- places ------------------------------------------------------------------------------------------

    def _places(self, part: typed.Typed) -> Iterator[Place]:
        match part:
            case typed.Read(field=field, key=key, info=info):
                yield from _field(field.path, key or "", of_existing=info.shape is Shape.ITEM)
            case typed.Aggregate():
                yield from (("pods", "count"), ("pods", "where"))
            case typed.Apply(builtin=builtin, inputs=inputs, info=info):
                for query in inputs:
                    if isinstance(query, Query):
                        yield ("metric", query.promql)
                yield from self._rule(builtin.name)
                if "device" in builtin.name or builtin.name.startswith(("share", "fragmentation")):
                    yield from _DEVICES
                if Depends.CLOCK in info.depends:
                    yield ("now",)

    def _rule(self, name: str) -> Iterator[Place]:
        for resource in _RULES.get(name, ()):
            yield ("pod", "request", resource)
        if name in _RULES:
            yield ("node", "use")
        match name:
            case "tolerated" | "taint_preference":
                yield from (("node", "taint"), ("pod", "toleration"))
            case "image_locality":
                yield from (("node", "image"), ("pod", "image"))
            case "matches_affinity" | "node_preference":
                yield ("pod", "selector")
            case "predicted":
                yield ("pods", "count")

    def _compared(self) -> Mapping[Place, tuple[str, ...]]:
        """Return the constants that stand in one comparison with a label or the like."""
        found: dict[Place, dict[str, None]] = {}
        for part in self._every:
            if isinstance(part, typed.Same):
                for one, other in ((part.left, part.right), (part.right, part.left)):
                    if any(place[:3] == ("node", "label", ZONE) for place in self.read_by(one)):
                        found.update({place: dict.fromkeys(DOMAINS) for place in self.read_by(other)})
            if isinstance(part, typed.Same | typed.Contained | typed.Apply):
                words = texts_of(typed.below(part))
                for read in typed.below(part):
                    if isinstance(read, typed.Read):
                        for place in _field(read.field.path, read.key or "", of_existing=read.info.shape is Shape.ITEM):
                            found.setdefault(place, {}).update(dict.fromkeys(words))
        return {place: tuple(words) for place, words in found.items()}


def _field(path: str, key: str, *, of_existing: bool) -> Iterator[Place]:
    who = "pods" if of_existing else "pod"
    match path:
        case "node.label" | "node.annotation":
            yield ("node", path.partition(".")[2], key)
        case "node.zone" | "node.region" | "node.arch" | "node.os":
            yield ("node", "label", _NODE_LABELS[path])
        case "node.ready" | "node.unschedulable" | "node.age":
            yield ("node", path.partition(".")[2])
        case "node.conditions":
            yield ("node", "condition", key)
        case "node.allocatable":
            yield ("node", "resource", key)
        case "node.free" | "node.requested" | "node.used_fraction":
            yield from (("node", "resource", key), ("pod", "request", key), ("node", "use"))
        case "node.images":
            yield from (("node", "image"), ("pod", "image"))
        case "node.taints":
            yield ("node", "taint")
        case "pod.label" | "pod.annotation":
            yield (who, path.partition(".")[2], key)
        case "pod.request" | "pod.limit":
            yield (who, "request", key)
        case "pod.owner.kind" | "pod.owner.name":
            yield (who, "owner")
        case "pod.images":
            yield (who, "image")
        case "pod.queued" | "pod.waiting":
            yield ("pod", "queued")
        case "pod.priority" | "pod.attempts" | "pod.namespace":
            yield (who, path.partition(".")[2])
        case "pod.tolerations":
            yield (who, "toleration")
        case "pod.node_selector":
            yield ("pod", "selector")
