"""The values that a policy can tell apart, and the space of cases that they span."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kube_policy_scheduler.cluster.signals import About, Query
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind, values_of
from kube_policy_scheduler.lang.types import NATIVE_RESOURCES, Depends, Kind, Shape, resource_name

Place: TypeAlias = tuple[str, ...]
"""Which variable, such as `("node", "label", "disk")`; "node" is the first node, the others keep their defaults."""
Assignment: TypeAlias = Mapping[Place, Any]

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OTHER = "other"
"""A text that the policy does not name."""
ABSENT = None
SAME = "the pod's"
"""Of existing pods: what the pod that is decided has."""
_AMOUNTS = {"cpu": (4, 1, 64), "memory": ("16Gi", "1Gi", "256Gi"), "ephemeral-storage": ("100Gi", "1Gi", "2Ti")}
"""Of a node; the first is the default. Others are counted, such as GPUs."""
_REQUESTS = {
    "cpu": ("100m", 2, 32),
    "memory": ("128Mi", "8Gi", "128Gi"),
    "ephemeral-storage": (None, "10Gi", "1Ti"),
}
DEFAULT_NOW = "2026-01-07T12:00:00Z"
_MOMENTS = (*(f"2026-01-07T{hour:02}:30:00Z" for hour in range(0, 24, 3)), "2026-01-10T12:00:00Z")
"""A Wednesday around the clock, and a Saturday."""
_MOST_VALUES = 10
_MOST_PODS = 40
_PATTERN = re.compile(r"\\.|[\^$.*+?()\[\]{}|]")
IMAGE = "registry.example.com/app:1"
DOMAINS = ("a", "b")
"""Values of the labels that define domains."""
TAINT = "dedicated=team:NoSchedule"
SHARED = (("pod", "label"), ("pod", "namespace"), ("pod", "owner"))
"""What pods of one key have in common."""
_SHARES = "-milli"


class Values:
    """The values of a policy's variables."""

    def __init__(
        self, parts: Sequence[typed.Typed], beside: Mapping[Place, tuple[str, ...]], topologies: frozenset[str]
    ) -> None:
        """Take what the policy is made of.

        Args:
            parts: all its expressions.
            beside: the texts that each variable is compared with.
            topologies: label keys that domains are told by.
        """
        self._numbers = _numbers(parts)
        self._beside = beside
        self._topologies = topologies

    def of(self, place: Place) -> tuple[Any, ...]:
        """Return the values of one variable, the default first."""
        match place:
            case ("node" | "pod" | "pods", "label" | "annotation", _):
                values = self._words(place)
            case ("node", "condition", _):
                values = (ABSENT, "True", "False")
            case ("node", "ready"):
                values = (True, False)
            case ("node", "unschedulable"):
                values = (False, True)
            case ("node", "resource", resource):
                values = _AMOUNTS.get(resource) or (8, ABSENT, 1, 0, 16)
            case ("pod" | "pods", "request", resource):
                values = _REQUESTS.get(resource) or _device_requests(resource)
                if place[0] == "pod" and resource in NATIVE_RESOURCES:
                    values = (*values, *self._amounts(resource))
                if place[0] == "pods" and resource in NATIVE_RESOURCES:
                    values = (ABSENT, "500m", 2, "3500m") if resource == "cpu" else (ABSENT, "1Gi", "8Gi")
            case ("node", "use"):
                values = (0.0, 0.5, 0.8, 0.95)
            case ("all", "use"):
                values = (False, True)
            case ("pods", "count"):
                counts = {1, 2, *(int(n + d) for n in self._numbers for d in (-1, 0, 1) if 0 < n + d <= _MOST_PODS)}
                values = (0, *sorted(counts))
            case ("pods", "where"):
                values = ("node", "all")
            case ("metric" | "cluster metric" | "value metric", _):
                values = self._measures()
            case ("now",):
                values = (DEFAULT_NOW, *_MOMENTS)
            case ("pod", "queued"):
                values = (0, *_around(self._numbers), 2 * 86400)
            case ("node", "age"):
                values = (86400 * 30, *_around(self._numbers), 60)
            case ("pod", "attempts"):
                values = (0, *_steps(self._numbers, low=0))
            case ("pod" | "pods", "priority"):
                values = (0, *_steps(self._numbers, low=-(2**31)))
            case ("pod" | "pods", "namespace"):
                values = ("default", *self._beside.get(place, ()), OTHER)
            case ("pod" | "pods", "owner"):
                values = (ABSENT, *self._beside.get(place, ()), "ReplicaSet", "DaemonSet")
            case ("node", "taint"):
                values = (ABSENT, TAINT)
            case ("pod", "toleration"):
                values = (ABSENT, TAINT)
            case ("node", "image"):
                values = (False, True)
            case ("pod" | "pods", "image"):
                values = (IMAGE, *(word for word in self._beside.get(place, ()) if "/" in word))
            case ("pod", "selector"):
                values = (ABSENT, True)
            case _:
                values = (ABSENT,)
        if place[0] == "pods" and ("pod", *place[1:2]) in SHARED:
            values = (SAME, *values)
        most = _MOST_VALUES if place[:2] != ("pods", "count") else 16
        return tuple(dict.fromkeys(values))[:most]

    def _amounts(self, resource: str) -> tuple[Any, ...]:
        """Return the constants that can be amounts of a resource, and their halves."""
        if resource in ("memory", "ephemeral-storage"):
            return tuple(f"{int(n) >> 20 >> half}Mi" for n in self._numbers if n >= 2 << 20 for half in (0, 1))
        return tuple(int(n) >> half for n in self._numbers if 1 < n <= 1000 and n == int(n) for half in (0, 1))

    def _words(self, place: Place) -> tuple[Any, ...]:
        beside = (*self._beside.get(place, ()), *self._beside.get(("pod", *place[1:]), ()))
        words = [word for word in dict.fromkeys(beside) if _is_label(word)]
        words += [f"{word}1" for word in words if not word[-1].isalnum() or "-" in word]
        if place[:2] == ("node", "label") and place[2] in (ZONE, *self._topologies):
            return (*DOMAINS, ABSENT, *words)
        default = words[:1] or ["1"]
        if place[0] == "node":
            return (ABSENT, *default, *words[1:], OTHER)
        return (*default, *words[1:], OTHER, ABSENT, *self._counts())

    def _counts(self) -> tuple[str, ...]:
        """Return numbers as labels hold them, one on each side of every constant."""
        return tuple(dict.fromkeys(str(int(n) + d) for n in self._numbers if 0 <= n < 1000 for d in (0, 1)))

    def _measures(self) -> tuple[Any, ...]:
        numbers = [n for n in self._numbers if abs(n) <= 1e6]
        near = dict.fromkeys(n for number in numbers for n in (number, number + 5, number - 5, 100 - number))
        values = (10.0, ABSENT, 90.0, 0.0, *near)
        return tuple(n for n in values if n is None or n >= 0)


def _device_requests(resource: str) -> tuple[Any, ...]:
    return (ABSENT, 460, 700) if resource.endswith(_SHARES) else (ABSENT, 1, 2, 8, 32)


def _numbers(parts: Iterable[typed.Typed]) -> tuple[float, ...]:
    found: dict[float, None] = {}
    for part in parts:
        if (
            isinstance(part, typed.Constant)
            and part.info.type.kind is Kind.NUMBER
            and not isinstance(part.value, tuple)
        ):
            found[float(part.value)] = None
    return tuple(found)


def texts_of(parts: Iterable[typed.Typed]) -> tuple[str, ...]:
    """Return the texts among constants, without the marks of patterns."""
    found: dict[str, None] = {}
    for part in parts:
        if isinstance(part, typed.Constant):
            values = part.value if isinstance(part.value, tuple) else (part.value,)
            for value in values:
                if isinstance(value, str):
                    found[_PATTERN.sub("", value)] = None
    return tuple(word for word in found if word)


def _is_label(word: str) -> bool:
    return (
        re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?|[A-Za-z0-9][-A-Za-z0-9_.]{0,60}", word) is not None
    )


def _around(numbers: Sequence[float]) -> tuple[float, ...]:
    return tuple(
        value for number in numbers if 1 <= number <= 1e8 for value in (2 * number, round(number / 2), round(number))
    )


def _steps(numbers: Sequence[float], *, low: float) -> tuple[int, ...]:
    return tuple(int(n) + d for n in numbers if abs(n) < 2**30 for d in (0, -1, 1) if int(n) + d >= low)


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


@dataclass(frozen=True, slots=True)
class Variable:
    """One thing that can differ."""

    place: Place
    values: tuple[Any, ...]
    """The first is the default."""


class SearchSpace:
    """The variables of a policy, and which of them an expression reads."""

    def __init__(self, policy: CheckedPolicy) -> None:
        self._roots = tuple(value for clause in policy.clauses for value in values_of(clause))
        if policy.governs is not None:
            self._roots = (policy.governs, *self._roots)
        self._every = tuple(part for root in self._roots for part in typed.below(root))
        self.topologies = frozenset(
            clause.topology
            for clause in policy.clauses
            if isinstance(clause, checked.Grouping | checked.Quota) and clause.topology
        )
        compared = dict(self._compared())
        for clause in policy.clauses:
            if isinstance(clause, checked.Quota) and clause.of_pods is not None:
                for place in self.read_by(clause.of_pods):
                    own = ("pod", *place[1:])
                    compared[own] = (*compared.get(place, ()), *compared.get(own, ()))
        values = Values(self._every, compared, self.topologies)
        places: dict[Place, None] = {}
        for root in self._roots:
            places.update(dict.fromkeys(self.read_by(root)))
        for clause in policy.clauses:
            places.update(dict.fromkeys(self.of_clause(clause)))
        places.update({("pod", "request", "cpu"): None, ("all", "use"): None})
        self.variables: Mapping[Place, Variable] = {place: Variable(place, values.of(place)) for place in places}

    def default(self) -> dict[Place, Any]:
        """Return the assignment in which every variable has its default."""
        return {place: variable.values[0] for place, variable in self.variables.items()}

    def of_clause(self, clause: checked.Clause) -> tuple[Place, ...]:
        """Return the variables that a clause as a whole reads, its expressions aside."""
        found: list[Place] = []
        if clause.kind in (ClauseKind.SPREAD, ClauseKind.PACK, ClauseKind.LIMIT):
            found += [("pods", "count"), ("pods", "request", "cpu"), ("pods", "where")]
            read = [place for value in values_of(clause) for place in self.read_by(value)]
            found += [("pods", *place[1:]) for place in read if place[:2] in SHARED]
            if isinstance(clause, checked.Quota) and clause.of_pods is not None:
                # the pod itself has a limit only if it is one of those that count
                found += [("pod", *place[1:]) for place in self.read_by(clause.of_pods) if place[0] == "pods"]
            if isinstance(clause, checked.Grouping | checked.Quota) and clause.topology:
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
        """Return the variables that an expression reads."""
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
                        yield (_METRICS[query.about], query.promql)
                for path in builtin.reads:
                    start, _, resource = path.rpartition(".")
                    asked = (start, resource_name(resource)) if start.count(".") else (path, "")
                    yield from _field(*asked, of_existing=False)
                if Depends.CLOCK in info.depends:
                    yield ("now",)

    def _compared(self) -> Mapping[Place, tuple[str, ...]]:
        """Return the constants that are compared with a label or a similar value."""
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


_METRICS = {About.NODES: "metric", About.CLUSTER: "cluster metric", About.VALUES: "value metric"}


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
        case "node.requested" if not key:
            yield ("node", "use")
        case "node.free" | "node.requested" | "node.used_fraction":
            yield from (("node", "resource", key), ("pod", "request", key), ("node", "use"))
        case "node.images":
            yield from (("node", "image"), ("pod", "image"))
        case "node.taints":
            yield ("node", "taint")
        case "node.pods":
            yield ("pods", "count")
        case "node.devices":
            yield from _DEVICES
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
