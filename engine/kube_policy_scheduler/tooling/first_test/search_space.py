"""The values that a policy can tell apart, and the space of cases that they span."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from kube_policy_scheduler.cluster.signals import About, Query
from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind, values_of
from kube_policy_scheduler.lang.environment import Field, Key
from kube_policy_scheduler.lang.signature import TypeSpec
from kube_policy_scheduler.lang.types import NATIVE_RESOURCES, SECONDS, Depends, Kind, Literal, Shape, resource_name
from kube_policy_scheduler.times import unix_seconds
from kube_policy_scheduler.tooling.first_test.written_facts import can_be_written

Place: TypeAlias = tuple[str, ...]
"""Which variable, such as `("node", "label", "disk")`; "node" is the first node, the others keep their defaults."""
Assignment: TypeAlias = Mapping[Place, Any]

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OTHER = "other"
"""A text that the policy does not name."""
ABSENT = None


class Same(Enum):
    """In place of a value of existing pods: the one of the pod that is decided."""

    SAME = "same"


SAME = Same.SAME
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
_PATTERN = re.compile(r"\\(\W)|\.[*+?]|\\\w|[\^$*+?()\[\]{}|]")
"""What stands in a pattern beside the text that it matches; a dot matches itself."""
_MARKS = re.compile(r"\\.|[\^$.*+?()\[\]{}|]")
_QUOTED = re.compile(r'"([^"\n]*)"')
"""Texts in the source of a call, whose constants the checker has bound."""
_IMAGE_NAME = re.compile(r"[a-z0-9][-a-zA-Z0-9_.:/@]{0,200}")
IMAGE = "registry.example.com/app:1"
NODES = ("n1", "n2", "n3")
"""The first one varies."""
PEERS = (f"peer-{NODES[0]}", f"peer-{NODES[0]}-0")
"""Names of the pods on the first node, of one alone and of several."""
DOMAINS = ("a", "b")
"""Values of the labels that define domains."""
TAINT = "dedicated=team:NoSchedule"
SHARED = (("pod", "label"), ("pod", "namespace"), ("pod", "owner"))
"""What pods of one key have in common."""
_SHARES = "-milli"


class Values:
    """The values of a policy's variables."""

    def __init__(
        self,
        parts: Sequence[typed.Typed],
        beside: Mapping[Place, tuple[str, ...]],
        topologies: frozenset[str],
        facts: Mapping[Place, Field],
    ) -> None:
        """Take what the policy is made of.

        Args:
            parts: all its expressions.
            beside: the texts that each variable is compared with.
            topologies: the label keys of domains.
            facts: the fields of variables whose values follow from the field.
        """
        self._numbers = _numbers(parts)
        self._beside = beside
        self._topologies = topologies
        self._facts = facts

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
            case ("node", "price"):
                values = (ABSENT, 0.1, 1, 10, *(n for n in self._numbers if 0 < n <= 1000))
            case ("pod", "attempts"):
                values = (0, *_steps(self._numbers, low=0))
            case ("pod" | "pods", "priority"):
                values = (0, *_steps(self._numbers, low=-(2**31)))
            case ("pod" | "pods", "namespace"):
                values = ("default", *self._beside.get(place, ()), OTHER)
            case ("pod" | "pods", "owner"):
                values = (ABSENT, *self._beside.get(place, ()), "ReplicaSet", "DaemonSet")
            case ("pod" | "pods", "owner name"):
                values = ("owner", *self._beside.get(place, ()))
            case ("node", "taint"):
                values = (ABSENT, TAINT, *self._taints())
            case ("pod", "toleration"):
                values = (ABSENT, TAINT, *self._taints())
            case ("node", "image"):
                values = (ABSENT, IMAGE, *_images(self._beside.get(place, ())))
            case ("pod" | "pods", "image"):
                values = (IMAGE, *_images(self._beside.get(place, ())))
            case ("pod", "selector"):
                pairs = (word for word in self._beside.get(place, ()) if re.fullmatch(r"[\w./-]+=[\w.-]+", word))
                values = (ABSENT, f"kubernetes.io/hostname={NODES[0]}", *pairs)
            case ("node", "numa"):
                values = (ABSENT, "all", "half", "little")
            case ("node", "volume_room", _):
                values = (ABSENT, "100Gi", "1Gi", *self._amounts("memory"), *self._doubled())
            case ("node" | "pod" | "pods", "fact", *_):
                values = tuple(self._of_field(place, self._facts[place]))
            case _:
                values = (ABSENT,)
        if place[0] == "pods" and ("pod", *place[1:2]) in SHARED:
            values = (SAME, *values)
        most = _MOST_VALUES if place[:2] != ("pods", "count") else 16
        return tuple(dict.fromkeys(values))[:most]

    def _taints(self) -> Iterator[str]:
        words = (*self._beside.get(("node", "taint"), ()), *self._beside.get(("pod", "toleration"), ()))
        return (f"{word}:NoSchedule" for word in dict.fromkeys(words) if _is_label(word.rpartition("/")[2]))

    def _of_field(self, place: Place, field: Field) -> Iterator[Any]:
        """Yield what a field can be; the first stands for what an object has that does not say it."""
        yield ABSENT
        words = (*field.gives.words, *self._beside.get(place, ()))
        match field.gives.kind:
            case Kind.TRUTH:
                yield from (True, False)
            case Kind.NUMBER if field.key is Key.RESOURCE:
                yield from (
                    (2, 32, *self._amounts(place[-1])) if place[-1] == "cpu" else ("8Gi", *self._amounts(place[-1]))
                )
            case Kind.NUMBER:
                plain = (*_steps(self._numbers, low=field.low), *self._numbers)
                near = _around(self._numbers) if field.gives.unit == SECONDS else plain
                yield from (value for value in near if field.low <= value <= field.high)
            case _:
                yield from words
                yield from (OTHER,) if not field.gives.words else ()

    def _amounts(self, resource: str) -> tuple[Any, ...]:
        """Return the constants that can be amounts of a resource, and their halves."""
        if resource in ("memory", "ephemeral-storage"):
            return tuple(f"{int(n) >> 20 >> half}Mi" for n in self._numbers if n >= 2 << 20 for half in (0, 1))
        return tuple(int(n) >> half for n in self._numbers if 1 < n <= 1000 and n == int(n) for half in (0, 1))

    def _doubled(self) -> tuple[str, ...]:
        """Return twice the constants that can be amounts of bytes."""
        return tuple(f"{int(n) >> 19}Mi" for n in self._numbers if 2 << 20 <= n <= 1e18)

    def _words(self, place: Place) -> tuple[Any, ...]:
        beside = (*self._beside.get(place, ()), *self._beside.get(("pod", *place[1:]), ()))
        words = [word for word in dict.fromkeys(beside) if place[1] == "annotation" or _is_label(word)]
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
    """Return the texts among constants, and what they match as patterns."""
    found: dict[str, None] = {}
    without_dots: dict[str, None] = {}
    for part in parts:
        values: tuple[Any, ...] = ()
        if isinstance(part, typed.Constant):
            values = part.value if isinstance(part.value, tuple) else (part.value,)
        elif isinstance(part, typed.Apply):
            values = tuple(_QUOTED.findall(part.span.text))
        for value in values:
            if isinstance(value, str):
                if isinstance(part, typed.Constant):
                    found[value] = None
                found[_PATTERN.sub(r"\1", value.replace("\\\\", "\\"))] = None
                without_dots[_MARKS.sub("", value)] = None
    return tuple(word for word in (found | without_dots) if word)


def _images(words: Iterable[str]) -> Iterator[str]:
    """Yield the texts that name images."""
    for word in words:
        name = f"{word}app" if word.endswith("/") else word
        if _IMAGE_NAME.fullmatch(name) is not None:
            yield name


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
        self._roots += checked.queue_values_of(policy)
        self._every = tuple(part for root in self._roots for part in typed.below(root))
        self.topologies = frozenset(label for clause in policy.clauses for label in _labels(clause))
        compared = dict(self._compared())
        for clause in policy.clauses:
            if isinstance(clause, checked.Quota) and clause.of_pods is not None:
                for place in self.read_by(clause.of_pods):
                    own = ("pod", *place[1:])
                    compared[own] = (*compared.get(place, ()), *compared.get(own, ()))
        values = Values(self._every, compared, self.topologies, self._facts())
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
            found += [("node", "label", label) for label in _labels(clause)]
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

    def _facts(self) -> Mapping[Place, Field]:
        """Return the fields that have variables of their own; `limit … of pods where` also varies the pod's."""
        found: dict[Place, Field] = {}
        for part in self._every:
            if isinstance(part, typed.Read):
                own = [place for place in self._places(part) if place[1:2] == ("fact",)]
                found.update(dict.fromkeys(own, part.field))
                found.update({("pod", *place[1:]): part.field for place in own if place[0] == "pods"})
        return found

    def not_varied(self, spans: Sequence[Span]) -> tuple[Span, ...]:
        """Return where expressions in these places read what is the same in all cases."""
        found: dict[tuple[str, int, int], Span] = {}
        seen: set[int] = set()
        for part in self._every:
            if id(part) not in seen and any(_within(part.span, span) for span in spans):
                for inner in typed.below(part):
                    seen.add(id(inner))
                    if self._is_same_in_all_cases(inner):
                        found[inner.span.source.name, inner.span.start, inner.span.end] = inner.span
        return tuple(found.values())

    def _is_same_in_all_cases(self, part: typed.Typed) -> bool:
        match part:
            case typed.Read():
                return not any(self._places(part))
            case typed.Apply(builtin=builtin) if builtin.reads_frame or builtin.staged:
                return not self.read_by(part)
            case _:
                return False

    def _places(self, part: typed.Typed) -> Iterator[Place]:
        match part:
            case typed.Read(field=field, key=key, info=info):
                yield from _of_read(field, key or "", of_existing=info.shape is Shape.ITEM)
            case typed.Aggregate():
                yield from (("pods", "count"), ("pods", "where"))
            case typed.Apply(builtin=builtin, inputs=inputs, info=info):
                for query in inputs:
                    if isinstance(query, Query):
                        yield (_METRICS[query.about], query.promql)
                for path in builtin.reads:
                    if path == "node.volume_room":
                        yield from (("node", "volume_room", word) for word in _QUOTED.findall(part.span.text))
                        continue
                    start, _, resource = path.rpartition(".")
                    asked = (start, resource_name(resource)) if start.count(".") else (path, "")
                    yield from _field(*asked, of_existing=False)
                if Depends.NUMA in info.depends:
                    yield ("node", "numa")
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
            if isinstance(part, typed.Same | typed.Contained) and any(
                isinstance(each, typed.Read) and each.field.path == "node.name" for each in typed.below(part)
            ):
                for place in self.read_by(part):
                    found.setdefault(place, {}).update(dict.fromkeys(NODES))
            if isinstance(part, typed.Same) and any(
                isinstance(each, typed.Read) and each.field.path == "pod.name" and each.info.shape is Shape.ITEM
                for each in (part.left, part.right)
            ):
                for place in self.read_by(part):
                    found.setdefault(place, {}).update(dict.fromkeys(PEERS))
            if isinstance(part, typed.Same | typed.Contained | typed.Apply | typed.ListAggregate):
                words = texts_of(typed.below(part))
                if isinstance(part, typed.Apply) and part.builtin.words.reads_text:
                    words = tuple(_readable(part.builtin.gives, self._every))
                for read in typed.below(part):
                    if isinstance(read, typed.Read):
                        for place in self._places(read):
                            found.setdefault(place, {}).update(dict.fromkeys(words))
        return {place: tuple(words) for place, words in found.items()}


_METRICS = {
    About.NODES: "metric",
    About.CLUSTER: "cluster metric",
    About.VALUES: "value metric",
    About.PAIRS: "value metric",
}


def _within(inner: Span, outer: Span) -> bool:
    return inner.source.name == outer.source.name and outer.start <= inner.start and inner.end <= outer.end


def _readable(gives: TypeSpec, parts: Sequence[typed.Typed]) -> Iterator[str]:
    """Yield texts that a function can read which turns them into a quantity, a duration, a time or a version."""
    numbers = _numbers(parts)
    if gives.kind is Kind.VERSION:
        yield from (word for word in texts_of(parts) if word[:1].isdigit())
        yield from ("999.0.0", "0.0.1")
    elif gives.literal is Literal.QUANTITY:
        yield from ("8Gi", "100m")
        yield from (f"{n:.0f}" for number in numbers if number >= 1 for n in (2 * number, number, number / 2))
    elif gives.unit == SECONDS:
        now = unix_seconds(DEFAULT_NOW) or 0.0
        yield from ("10min", f"{now - 3600:.0f}", f"{now + 3600:.0f}")
        yield from (f"{n:.0f}s" for n in _around(numbers))


def _of_read(field: Field, key: str, *, of_existing: bool) -> Iterator[Place]:
    """Yield the variables of a field: those that it shares with others, else one of its own if a case can write it."""
    known = tuple(_field(field.path, key, of_existing=of_existing))
    yield from known
    if known or not can_be_written(field):
        return
    subject, _, what = field.path.partition(".")
    who = "pods" if subject == "pod" and of_existing else subject
    yield (who, "fact", what, *((key,) if key else ()))
    if field.path == "pod.qos":
        yield from ((who, "request", "cpu"), (who, "request", "memory"))
    if Depends.CLOCK in field.depends:
        yield ("now",)


def _field(path: str, key: str, *, of_existing: bool) -> Iterator[Place]:
    """Yield the variables that a field shares with others, or that other fields are written by."""
    who = "pods" if of_existing else "pod"
    match path:
        case "node.label" | "node.annotation":
            yield ("node", path.partition(".")[2], key)
        case "node.zone" | "node.region" | "node.arch" | "node.os":
            yield ("node", "label", _NODE_LABELS[path])
        case "node.ready" | "node.unschedulable" | "node.age":
            yield ("node", path.partition(".")[2])
        case "node.price":
            yield ("node", "price")
        case "node.conditions":
            yield ("node", "condition", key)
        case "node.allocatable" | "node.capacity":
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
        case "pod.request":
            yield (who, "request", key)
        case "pod.limit" if key not in NATIVE_RESOURCES:  # is what is requested
            yield (who, "request", key)
        case "pod.owner.kind":
            yield (who, "owner")
        case "pod.owner.name":
            yield from ((who, "owner"), (who, "owner name"))
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


def _labels(clause: checked.Clause) -> tuple[str, ...]:
    """Return the label keys of the domains of a clause."""
    if isinstance(clause, checked.Quota):
        return clause.labels
    return (clause.topology,) if isinstance(clause, checked.Grouping) and clause.topology else ()
