"""Nodes that an autoscaler adds for pods that wait, and removes when they are idle, in virtual time.

It does what cluster-autoscaler and Karpenter do, but by the real rules of the scheduler. It looks at pods whose
rejection says that new nodes would help (`new_nodes`), and places them with the scheduling cycle on the nodes that
are ordered already. For what has no place there, it orders a node of the first shape that takes the pod. The node is
there after the delay of its shape. A node without pods goes after the idle time of its shape.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.prices import PRICE_KEY, price_of
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.diagnostics import Diagnostic, Source, closest
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.schema import EXPECTED, DocumentSchema
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_document
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.gang_domains import largest_first
from kube_policy_scheduler.framework.decide.gang_room import Members
from kube_policy_scheduler.framework.decide.new_nodes import UNSCHEDULABLE, AwaitingNodes, needs_of
from kube_policy_scheduler.framework.decide.rejection_memo import RejectionMemo
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.times import parse_duration
from kube_policy_scheduler.tooling.cluster_state import is_of_node
from kube_policy_scheduler.tooling.simulation.node_events import made_node, node_definitions, renamed
from kube_policy_scheduler.tooling.undoable_cluster import UndoableCluster

MOST_SHAPES = 100
MOST_NODES = 100_000
"""Of one shape."""
DEFAULT_DELAY_SECONDS = 120.0
DEFAULT_IDLE_SECONDS = 600.0
"""cluster-autoscaler's `--scale-down-unneeded-time`."""
SCAN_SECONDS = 10.0
"""cluster-autoscaler's `--scan-interval`."""
EXPENDABLE_BELOW = -10
"""cluster-autoscaler's `--expendable-pods-priority-cutoff`: pods of lower priority get no new nodes."""


_NAME = "^[a-z0-9]([-a-z0-9.]{0,48}[a-z0-9])?$"


@dataclass(frozen=True, slots=True)
class AutoscaledShape:
    """Nodes that come and go."""

    name: str
    node: objects.Node
    """What a new one is, but for its name."""
    own_pods: tuple[objects.Pod, ...] = ()
    """Pods that start with each: of DaemonSets."""
    least: int = 0
    most: int = 10
    delay: float = DEFAULT_DELAY_SECONDS
    """Seconds until a new node takes pods."""
    idle: float = DEFAULT_IDLE_SECONDS
    """Seconds without pods after which a node goes."""
    matching: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes that are there at the beginning and belong to the shape; none: no node does."""


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """What an autoscaler may do."""

    shapes: tuple[AutoscaledShape, ...]
    """The preferred first."""
    scan: float = SCAN_SECONDS
    """Seconds between two looks at pending pods."""
    by_price: bool = False
    """Whether the cheapest is preferred; those without a price come last."""

    def in_order(self) -> list[AutoscaledShape]:
        """Return the shapes, the preferred first."""
        return sorted(self.shapes, key=_price_or_last) if self.by_price else list(self.shapes)


def _price_or_last(shape: AutoscaledShape) -> float:
    price = price_of(shape.node)
    return math.inf if math.isnan(price) else price


@cache
def _schema() -> DocumentSchema:
    defs = node_definitions()
    duration = {"$ref": "#/$defs/duration"}
    count = {"type": "integer", "minimum": 0, "maximum": MOST_NODES}
    shape = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "max"],
        "oneOf": [{"required": ["node"]}, {"required": ["like"]}],
        EXPECTED: "a shape with `name`, `max`, and `node` or `like`",
        "properties": {
            "name": {
                "type": "string",
                "pattern": "^[a-z0-9]([-a-z0-9.]{0,48}[a-z0-9])?$",
                EXPECTED: "a name such as large",
            },
            "node": {"$ref": "#/$defs/node"},
            "like": {"type": "string", "minLength": 1},
            "min": count,
            "max": {**count, "minimum": 1},
            "delay": duration,
            "idle": duration,
            "price": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": 1_000_000,
                EXPECTED: "a price per hour above 0",
            },
            "matching": {"$ref": "#/$defs/texts"},
        },
    }
    properties = {
        "shapes": {"type": "array", "minItems": 1, "maxItems": MOST_SHAPES, "items": shape},
        "expander": {"enum": ["priority", "price"]},
        "scan": duration,
    }
    return DocumentSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["shapes"],
            "properties": properties,
            "$defs": defs,
        }
    )


def parse_autoscaling(source: Source, *, things: Sequence[Any]) -> Autoscaling:
    """Return what a file says.

    Args:
        source: the file.
        things: API objects of the cluster, for shapes that are like one of its nodes.

    Raises:
        DocumentError: it is no such file, or names a node that is not there; all problems are reported.
    """
    document = parse_document(source)
    problems = list(_schema().check(document))
    if problems:
        raise DocumentError(problems)
    nodes = {thing.metadata.name: thing for thing in things if isinstance(thing, objects.Node)}
    value = document.value
    shapes: dict[str, AutoscaledShape] = {}
    for index, form in enumerate(value["shapes"]):
        here = FixtureObject({}, document, ("shapes", index))
        made = _shape(form, nodes, things, here, problems)
        if form["name"] in shapes:
            problems.append(here.error(("name",), f"a second shape has the name `{form['name']}`"))
        if form.get("min", 0) > form["max"]:
            problems.append(here.error(("min",), f"min is {form['min']}, more than max, {form['max']}"))
        if made is not None:
            shapes[made.name] = made
    scan = parse_duration(value["scan"]) if "scan" in value else SCAN_SECONDS
    if scan < 1:
        problems.append(FixtureObject({}, document, ()).error(("scan",), "expected at least 1s"))
    if problems:
        raise DocumentError(problems)
    return Autoscaling(tuple(shapes.values()), scan, value.get("expander") == "price")


def _shape(
    form: Mapping[str, Any],
    nodes: Mapping[str, objects.Node],
    things: Sequence[Any],
    here: FixtureObject,
    problems: list[Diagnostic],
) -> AutoscaledShape | None:
    own: tuple[objects.Pod, ...] = ()
    if "like" in form:
        node = nodes.get(form["like"])
        if node is None:
            meant = closest(form["like"], nodes)
            advice = f"; did you mean `{meant}`?" if meant else ""
            problems.append(here.error(("like",), f"the cluster has no node `{form['like']}`{advice}"))
            return None
        own = tuple(pod for pod in things if isinstance(pod, objects.Pod) and pod.spec.node_name == form["like"])
        node = _as_new(node)
    else:
        found = made_node(form["node"], here.document, (*here.path, "node"), problems)
        if found is None:
            return None
        node = found
    if "price" in form:
        annotations = {**(node.metadata.annotations or {}), PRICE_KEY: f"{form['price']:.9f}".rstrip("0").rstrip(".")}
        node = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=annotations))
    return AutoscaledShape(
        form["name"],
        node,
        own,
        form.get("min", 0),
        form["max"],
        parse_duration(form["delay"]) if "delay" in form else DEFAULT_DELAY_SECONDS,
        parse_duration(form["idle"]) if "idle" in form else DEFAULT_IDLE_SECONDS,
        form.get("matching", {}),
    )


def _as_new(node: objects.Node) -> objects.Node:
    """Return a node as it was when it was new: ready, and without what the node controller marked it with."""
    taints = [taint for taint in node.spec.taints or () if not taint.key.startswith("node.kubernetes.io/")]
    spec = msgspec.structs.replace(node.spec, taints=taints, unschedulable=False)
    others = [one for one in node.status.conditions or () if one.type != "Ready"]
    ready = objects.NodeCondition(type="Ready", status="True")
    status = msgspec.structs.replace(node.status, conditions=[*others, ready])
    return msgspec.structs.replace(node, spec=spec, status=status)


# --- while the simulation runs ---------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Upcoming:
    """A node that is on its way."""

    ready_at: float
    shape: AutoscaledShape
    name: str
    node: objects.Node
    own: list[PodInfo]
    covered: dict[str, QueuedPod] = field(default_factory=dict)
    """Pods that have a place on it, by uid."""


class Autoscaler:
    """Adds and removes nodes of one simulated cluster. It decides when; its owner makes the changes."""

    def __init__(
        self,
        autoscaling: Autoscaling,
        cluster: Cluster,
        algorithm: ScheduleAlgorithm,
        *,
        members: Callable[[GangRequirement], Iterable[QueuedPod]],
        pending: Callable[[str], QueuedPod | None],
    ) -> None:
        """Make one.

        Args:
            autoscaling: what it may do.
            cluster: where; changed while it looks, and as before afterwards.
            algorithm: decides about pods.
            members: gives the pending pods of a gang.
            pending: gives a pending pod by its uid.
        """
        self._shapes, self._scan_seconds = autoscaling.in_order(), autoscaling.scan
        self._cluster, self._algorithm = cluster, algorithm
        self._members, self._pending = members, pending
        self._awaiting = AwaitingNodes()
        self._wanting: dict[str, tuple[GangRequirement, ...]] = {}
        """Pods that new nodes would help, by uid, the oldest rejection first."""
        self._covered: dict[str, _Upcoming] = {}
        self._upcoming: list[_Upcoming] = []
        self._shape_of: dict[str, AutoscaledShape] = {}
        """By the name of a node that is there."""
        self._counts = {shape.name: 0 for shape in autoscaling.shapes}
        """Nodes of each shape, with those on their way."""
        self._numbers = {shape.name: 0 for shape in autoscaling.shapes}
        self._idle_since: dict[str, float] = {}
        self._idle_due: list[tuple[float, str]] = []
        self._next_scan: float | None = None

    @property
    def upcoming(self) -> int:
        """Return how many nodes are on their way."""
        return len(self._upcoming)

    @property
    def upcoming_hourly(self) -> float:
        """Return what nodes on their way cost per hour, those with a price."""
        each = (price_of(one.node) for one in self._upcoming)
        return sum(price for price in each if not math.isnan(price))

    def begin(self, now: float) -> Iterator[tuple[objects.Node, list[PodInfo]]]:
        """Adopt the nodes that are there; yield those that shapes have at least, which are there at once."""
        for info in self._cluster.nodes.infos:
            for shape in self._shapes:
                if shape.matching and shape.matching.items() <= info.labels.items():
                    self._shape_of[info.name] = shape
                    self._counts[shape.name] += 1
                    break
        for shape in self._shapes:
            while self._counts[shape.name] < shape.least:
                made = self._new(shape, now)
                self._shape_of[made.name] = shape
                yield made.node, made.own
        self.look_at(self._shape_of, now)

    def _new(self, shape: AutoscaledShape, ready_at: float) -> _Upcoming:
        self._counts[shape.name] += 1
        while True:
            self._numbers[shape.name] += 1
            name = f"{shape.name}-{self._numbers[shape.name]}"
            if name not in self._cluster.nodes.rows:
                break
        node = renamed(shape.node, name)
        own = []
        for number, pod in enumerate(shape.own_pods):
            info = self._cluster.templates.pod(pod)
            if is_of_node(info) and not info.volumes:
                uid = f"{info.uid}-{number}-on-{name}"
                own.append(msgspec.structs.replace(info, uid=uid, name=uid, node_name=name))
        return _Upcoming(ready_at, shape, name, node, own)

    # --- pods ------------------------------------------------------------------------------------------

    def rejected(
        self, queued: QueuedPod, requirements: tuple[GangRequirement, ...], decision: Decision, now: float
    ) -> None:
        """Note that a pod has no node, as the scheduler reports it: it may want a new one."""
        pod = queued.pod
        if pod.uid in self._covered:
            return
        self.settled(pod.uid)
        if pod.nominated_node or pod.priority < EXPENDABLE_BELOW or is_of_node(pod):
            return
        needs = needs_of(requirements, self._cluster.counters.group_size)
        profile = self._algorithm.profile(pod)
        frame = self._algorithm.frame(queued)
        found = self._awaiting.judge(
            frame, profile, decision.diagnosis, gang=needs.gang, together=needs.together, fills=needs.fills
        )
        if found.reason != UNSCHEDULABLE or not found.help:
            return
        self._wanting[pod.uid] = requirements
        if self._next_scan is None:
            self._next_scan = (now // self._scan_seconds + 1) * self._scan_seconds

    def settled(self, uid: str) -> None:
        """Note that a pod has a node, is gone, or waits for something else."""
        self._awaiting.withdraw(uid)
        self._wanting.pop(uid, None)
        upcoming = self._covered.pop(uid, None)
        if upcoming is not None:
            upcoming.covered.pop(uid, None)

    # --- time ------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """Return when there is something to do next, unix seconds."""
        times = [self._next_scan, self._upcoming[0].ready_at if self._upcoming else None]
        while self._idle_due and self._idle_at(*self._idle_due[0]) is None:
            heapq.heappop(self._idle_due)
        times.append(self._idle_due[0][0] if self._idle_due else None)
        return min((at for at in times if at is not None), default=None)

    def _idle_at(self, due: float, name: str) -> AutoscaledShape | None:
        """Return the shape of a node that has been idle long enough then, and may go."""
        since, shape = self._idle_since.get(name), self._shape_of.get(name)
        if since is None or shape is None or since + shape.idle > due or self._counts[shape.name] <= shape.least:
            return None
        return shape

    def ready(self, now: float) -> Iterator[tuple[objects.Node, list[PodInfo]]]:
        """Yield the nodes that are there from now on, each with its own pods."""
        while self._upcoming and self._upcoming[0].ready_at <= now:
            one = self._upcoming.pop(0)
            for uid in one.covered:
                del self._covered[uid]
            self._shape_of[one.name] = one.shape
            yield one.node, one.own
            self.look_at((one.name,), now)

    def idle(self, now: float) -> Iterator[str]:
        """Yield the nodes that go now."""
        while self._idle_due and self._idle_due[0][0] <= now:
            due, name = heapq.heappop(self._idle_due)
            if self._idle_at(due, name) is not None:
                yield name

    def gone(self, name: str) -> None:
        """Note that a node is gone."""
        shape = self._shape_of.pop(name, None)
        self._idle_since.pop(name, None)
        if shape is not None:
            self._counts[shape.name] -= 1

    def look_at(self, names: Iterable[str], now: float) -> None:
        """Note that pods came to nodes or left them."""
        shapes = set()
        for name in names:
            shape = self._shape_of.get(name)
            if shape is None:
                continue
            if any(not is_of_node(pod) for pod in self._cluster.pods_on(name).values()):
                self._idle_since.pop(name, None)
            elif name not in self._idle_since:
                self._idle_since[name] = now
                shapes.add(shape.name)
        for name, since in self._idle_since.items() if shapes else ():
            # one that stayed because of the minimum may go now
            shape = self._shape_of[name]
            if shape.name in shapes:
                heapq.heappush(self._idle_due, (max(now, since + shape.idle), name))

    # --- new nodes -------------------------------------------------------------------------------------

    def scan(self, now: float) -> None:
        """Order nodes for the pods that want them, if it is time."""
        if self._next_scan is None or now < self._next_scan:
            return
        self._next_scan = None
        wanting = [uid for uid in self._wanting if uid not in self._covered]
        if not wanting:
            return
        trial = _Trial(self._cluster, self._algorithm, now=now)
        with self._cluster.ledger.silent():
            try:
                for one in self._upcoming:
                    trial.add_node(one.node, one.own)
                    for queued in one.covered.values():
                        trial.place(queued.pod, one.name)
                done: set[str] = set()
                for uid in wanting:
                    if uid in done:
                        continue
                    unit, requirement = self._unit(uid)
                    done.update(queued.pod.uid for queued in unit)
                    self._order_for(unit, requirement, trial, now)
            finally:
                trial.undo_to(0)
        self._upcoming.sort(key=lambda one: one.ready_at)

    def _unit(self, uid: str) -> tuple[list[QueuedPod], GangRequirement | None]:
        """Return the pods of which some need places together, and until when: None where the pod needs one alone.

        For members that a gang can do without, nodes are ordered once it runs.
        """
        queued = self._pending(uid)
        if queued is None:
            return [], None
        size_of = self._cluster.counters.group_size
        for requirement in self._wanting[uid]:
            members = list(self._members(requirement))
            open_ones = [one for one in members if one.pod.uid not in self._covered]
            if requirement.filled(size_of) < requirement.size:
                return (self._largest_first(open_ones), requirement) if open_ones else ([], None)
            ordered = Counter(one.pod.template for one in members if one.pod.uid in self._covered)

            def running(group_of: GroupOf, group: Group, ordered: Counter[PodTemplate] = ordered) -> int:
                return size_of(group_of, group) - sum(n for each, n in ordered.items() if group_of(each) == group)

            if requirement.filled(running) < requirement.size:
                return [], None  # it does not run yet: nodes are ordered for those that it needs
        return [queued], None

    def _largest_first(self, pods: Iterable[QueuedPod]) -> list[QueuedPod]:
        """Return pods in the order in which the fewest nodes are enough for them, as a rule."""
        by_name = sorted(pods, key=lambda one: one.pod.key)
        anywhere = np.ones(self._cluster.nodes.size, np.bool_)
        kinds = [Members(template, 1, anywhere) for template in {one.pod.template: None for one in by_name}]
        place = {template: at for at, template in enumerate(largest_first(self._cluster, kinds))}
        return sorted(by_name, key=lambda one: place[one.pod.template])

    def _order_for(
        self, unit: Sequence[QueuedPod], requirement: GangRequirement | None, trial: _Trial, now: float
    ) -> None:
        size_of = self._cluster.counters.group_size
        mark, made = trial.mark(), list[_Upcoming]()
        places: list[tuple[QueuedPod, str]] = []
        for queued in unit:
            if requirement is not None and self._is_surplus(queued, requirement):
                continue
            host = trial.seat(queued)
            if host is None:
                new = self._order_one(queued, trial, now)
                if new is None:
                    continue
                made.append(new)
                host = new.name
            places.append((queued, host))
        if requirement is not None and requirement.filled(size_of) < requirement.size:
            trial.undo_to(mark)
            for one in made:
                self._counts[one.shape.name] -= 1
            return
        self._upcoming += made
        by_name = {one.name: one for one in self._upcoming}
        for queued, host in places:
            upcoming = by_name.get(host)
            if upcoming is not None:  # otherwise it fits on a node that is there: the scheduler will find it
                upcoming.covered[queued.pod.uid] = queued
                self._covered[queued.pod.uid] = upcoming

    def _is_surplus(self, queued: QueuedPod, requirement: GangRequirement) -> bool:
        """Return whether a pod fills no place that its gang needs, as the trial stands."""
        size_of, own = self._cluster.counters.group_size, self._wanting.get(queued.pod.uid, (requirement,))
        mine = next((each for each in own if each.group == requirement.group), requirement)
        filled = mine.filled(size_of)
        return filled >= mine.size or mine.filled(size_of, joining=1) == filled

    def _order_one(self, queued: QueuedPod, trial: _Trial, now: float) -> _Upcoming | None:
        """Order a node of the first shape that takes a pod; None if none does."""
        for shape in self._shapes:
            if self._counts[shape.name] >= shape.most or trial.is_hopeless(queued, shape.name):
                continue
            mark = trial.mark()
            new = self._new(shape, now + shape.delay)
            trial.add_node(new.node, new.own)
            if trial.seat(queued) == new.name:
                return new
            trial.undo_to(mark)
            self._counts[shape.name] -= 1
            self._numbers[shape.name] -= 1
            trial.note_hopeless(queued, shape.name)
        return None


class _Trial(UndoableCluster):
    """Places pods and nodes in a cluster for a while."""

    def __init__(self, cluster: Cluster, algorithm: ScheduleAlgorithm, *, now: float) -> None:
        super().__init__(cluster, now=now)
        self._algorithm = algorithm
        self._memo = RejectionMemo()
        self._hopeless: set[tuple[object, str]] = set()

    def add_node(self, node: objects.Node, own: Iterable[PodInfo]) -> None:
        self.set_node(node)
        for pod in own:
            self.put(pod, node.metadata.name)
        self._memo = RejectionMemo()

    def seat(self, queued: QueuedPod) -> str | None:
        """Place a pod where the scheduler would, and return where; None: nowhere."""
        decision = self._algorithm.decide(queued, preempts=False, memo=self._memo)
        if decision.host is not None:
            self.place(queued.pod, decision.host, order=decision.device_order, devices=decision.devices)
        return decision.host

    def is_hopeless(self, queued: QueuedPod, shape: str) -> bool:
        """Return whether a pod like this one got no place on a new node of a shape."""
        return (queued.pod.template, shape) in self._hopeless and self._algorithm.is_alike(queued)

    def note_hopeless(self, queued: QueuedPod, shape: str) -> None:
        self._hopeless.add((queued.pod.template, shape))

    def undo_to(self, mark: int) -> None:
        super().undo_to(mark)
        self._memo = RejectionMemo()
