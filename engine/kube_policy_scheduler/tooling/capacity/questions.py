"""The four questions about capacity, each answered by the scheduling cycle, with a bound by resources beside it. Pure.

Whatever is tried is undone, so that one cluster answers all questions. Each answer says whether it is complete: the
caller may stop the work between two pods, and gets what was found so far.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.prices import price_of
from kube_policy_scheduler.tooling.capacity import bounds, room
from kube_policy_scheduler.tooling.capacity.counting import copy_of
from kube_policy_scheduler.tooling.capacity.seats import Seated, Seats, Stop, in_turn, never
from kube_policy_scheduler.tooling.capacity.shapes import Shape, new_nodes
from kube_policy_scheduler.tooling.cluster_state import is_of_node
from kube_policy_scheduler.tooling.programs import TOLERANCE, Solver, whole
from kube_policy_scheduler.tooling.staying import Staying, node_reason
from kube_policy_scheduler.wording import part_of, plural

Progress: TypeAlias = Callable[[str], None]
"""Takes a line that says how far the work is."""

_EVERY = 256
"""Pods between two lines of progress."""
_STAYS_FREE = "the pods on it have no place elsewhere"


def _silent(text: str) -> None:
    return


@dataclass(frozen=True, slots=True)
class Rejection:
    """Pods without a node, for one reason."""

    message: str
    pods: int
    example: str
    """`namespace/name` of one of them."""


def _rejections(pods: Iterable[PodInfo], rejected: Mapping[str, str]) -> tuple[Rejection, ...]:
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for pod in pods:
        message = rejected.get(pod.uid)
        if message is not None:
            counts[message] += 1
            examples.setdefault(message, pod.key)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Rejection(message, count, examples[message]) for message, count in ranked)


# --- how many more ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MoreCopies:
    """How many more pods of a shape fit."""

    pod: str
    count: int
    stopped_by: str
    """What rejects the next one; "" where the work ended before."""
    bound: int
    """Copies for which the free resources suffice, node by node, whatever else the rules ask for."""
    nodes: Mapping[str, int]
    """Copies by node, in the order in which nodes got their first one."""
    complete: bool


def more_copies(
    seats: Seats, pod: PodInfo, *, most: int, stop: Stop = never, progress: Progress = _silent
) -> MoreCopies:
    """Place copies of a pod, one after another, until one is rejected."""
    mark = seats.mark()
    bound = room.most_copies(seats.cluster, pod, seats.may_take([pod]))
    nodes: dict[str, int] = {}
    count, stopped_by = 0, ""
    while count < most and not stop():
        answer = seats.seat(copy_of(seats, pod, count + 1))
        if answer.host is None:
            stopped_by = answer.text
            break
        count += 1
        nodes[answer.host] = nodes.get(answer.host, 0) + 1
        if count % _EVERY == 0:
            progress(f"{count:,} of at most {min(bound, most):,} copies placed")
    seats.undo_to(mark)
    return MoreCopies(pod.key, count, stopped_by, bound, nodes, bool(stopped_by))


# --- which nodes can be removed ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Removable:
    """A node that could be drained and removed."""

    node: str
    pods: int
    """Pods that move."""
    moves: tuple[tuple[str, str], ...]
    """Where they go: `namespace/name` and node."""
    hourly: float | None
    """What the node costs per hour; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Nodes that stay, for one reason."""

    reason: str
    nodes: tuple[str, ...]
    example: str
    """What it is about on the first of them."""


@dataclass(frozen=True, slots=True)
class RemovableNodes:
    """Which nodes can be removed, one after another."""

    nodes: int
    """In the cluster."""
    removable: tuple[Removable, ...]
    kept: tuple[Kept, ...]
    bound: int
    """Nodes that can go at most, if only resources counted."""
    complete: bool

    @property
    def moves(self) -> int:
        """Return how many pods move."""
        return sum(one.pods for one in self.removable)

    @property
    def hourly(self) -> float | None:
        """Return what the nodes that can be removed cost per hour, those with a price; None where none has one."""
        known = [one.hourly for one in self.removable if one.hourly is not None]
        return sum(known) if known else None


def removable_nodes(
    seats: Seats,
    *,
    local_storage: bool = True,
    solve: Solver | None = None,
    stop: Stop = never,
    progress: Progress = _silent,
) -> RemovableNodes:
    """Drain one node after another, those with the least use first; each stays away if all its pods find a place.

    local_storage: whether pods with local storage keep their node; solve: for a closer bound.
    """
    cluster, mark = seats.cluster, seats.mark()
    candidates, kept = _candidates(seats, local_storage=local_storage)
    sizes, need = _sizes(seats, candidates)
    usable = seats.may_take(pod for pods in candidates.values() for pod in pods)
    bound = room.most_removable(cluster, sizes, need, usable)
    if solve is not None:
        bound = min(bound, bounds.most_removable(cluster, sizes, need, usable, solve))
    found: list[Removable] = []
    complete = True
    for number, name in enumerate(sorted(candidates, key=lambda name: (_use(seats, name), name))):
        if stop():
            complete = False
            break
        if number % 16 == 0:
            progress(f"{part_of(number, len(candidates), 'node')} tried, {len(found):,} can be removed")
        why = _drained(seats, name, found)
        if why:
            kept[_STAYS_FREE].append((name, why))
    seats.undo_to(mark)
    grouped = (
        Kept(reason, tuple(name for name, _ in nodes), f"{nodes[0][0]}: {nodes[0][1]}")
        for reason, nodes in sorted(kept.items(), key=lambda item: (-len(item[1]), item[0]))
    )
    return RemovableNodes(cluster.nodes.size, tuple(found), tuple(grouped), bound, complete)


def _candidates(
    seats: Seats, *, local_storage: bool
) -> tuple[dict[str, list[PodInfo]], defaultdict[str, list[tuple[str, str]]]]:
    """Return the pods that move by the nodes that may go, and the other nodes by the kind of reason."""
    staying = Staying(seats.cluster, now=seats.now, local_storage=local_storage)
    candidates: dict[str, list[PodInfo]] = {}
    kept: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for info in seats.cluster.nodes.infos:
        name = info.name
        why = node_reason(info.node)
        if why:
            kept["an annotation of the node keeps it"].append((name, why))
            continue
        moving = [pod for pod in seats.cluster.pods_on(name).values() if not is_of_node(pod)]
        for pod in moving:
            why = staying.reason(pod)
            if why:
                kept["a pod on it must stay"].append((name, f"{pod.key}: {why}"))
                break
        else:
            candidates[name] = moving
    return candidates, kept


def _sizes(
    seats: Seats, candidates: Mapping[str, Sequence[PodInfo]]
) -> tuple[dict[str, Mapping[str, int]], Mapping[str, int]]:
    """Return what each candidate offers to pods that can move, and what these take now, by resource."""
    need = room.total(pod for pods in candidates.values() for pod in pods)
    sizes: dict[str, Mapping[str, int]] = {}
    nodes = seats.cluster.nodes
    usable = seats.may_take(pod for pods in candidates.values() for pod in pods)
    free = {resource: room.free(seats.cluster, resource, usable) for resource in need}
    for name, pods in candidates.items():
        row, moving = nodes.rows[name], room.total(pods)
        sizes[name] = {resource: int(free[resource][row]) + moving.get(resource, 0) for resource in need}
    return sizes, need


def _use(seats: Seats, name: str) -> float:
    """Return the largest share of a resource that is taken on a node."""
    nodes = seats.cluster.nodes
    row = nodes.rows[name]
    shares = [
        nodes.requested(resource)[row] / offered
        for resource, offered in nodes.infos[row].allocatable.items()
        if resource != room.SLOTS and offered > 0
    ]
    return max([float(share) for share in shares], default=0.0)


def _drained(seats: Seats, name: str, found: list[Removable]) -> str:
    """Drain a node, and note it where all pods find a place; else undo it and return why."""
    mark = seats.mark()
    seats.cordon(name)
    moving = [pod for pod in seats.cluster.pods_on(name).values() if not is_of_node(pod)]
    moves: list[tuple[str, str]] = []
    for pod in in_turn([seats.take_off(pod) for pod in moving]):
        answer = seats.seat(pod)
        if answer.host is None or answer.host == name:
            seats.undo_to(mark)
            back = f"{pod.key} would come back: it tolerates that the node is cordoned"
            return back if answer.host else f"{pod.key}: {answer.text}"
        moves.append((pod.key, answer.host))
    price = price_of(seats.cluster.nodes.infos[seats.cluster.nodes.rows[name]].node)
    found.append(Removable(name, len(moves), tuple(moves), None if math.isnan(price) else price))
    return ""


# --- how many nodes of which shape -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodesNeeded:
    """New nodes of one shape, for pods that have no place."""

    shape: Shape
    nodes: int
    seated: int
    """Pods that get a node."""
    without: tuple[Rejection, ...]
    """Pods that even an empty node of the shape does not help."""
    bound: int
    """Nodes that the seated pods need at least, by resources alone."""
    hourly: float | None
    """What the new nodes cost per hour; None where the price of the shape is not known."""
    complete: bool


@dataclass(frozen=True, slots=True)
class NewNodesOfShape:
    """Nodes of one shape in a mix."""

    shape: Shape
    nodes: int


@dataclass(frozen=True, slots=True)
class NodeMix:
    """New nodes of several shapes, for pods that have no place."""

    parts: tuple[NewNodesOfShape, ...]
    """The shapes that are used."""
    seated: int
    """Pods that get a node."""
    hourly: float | None
    """What the new nodes cost per hour; None where a price is not known."""
    bound: float
    """No mix costs less, by resources and by the shapes that take each pod alone: per hour if all prices are known,
    else in nodes; 0 if that is not known."""

    @property
    def nodes(self) -> int:
        """Return how many nodes there are."""
        return sum(part.nodes for part in self.parts)

    @property
    def cost(self) -> float:
        """Return what is as small as possible: the price, or the number of nodes where a price is not known."""
        return self.nodes if self.hourly is None else self.hourly


@dataclass(frozen=True, slots=True)
class PendingPods:
    """What pending pods need."""

    pods: int
    fit_now: int
    """Pods for which the cluster has a place already."""
    rejected: tuple[Rejection, ...]
    """The others."""
    needed: tuple[NodesNeeded, ...]
    """For these, shape by shape, the best first."""
    mix: NodeMix | None
    """The cheapest new nodes of several shapes that were found; None without a solver, or where nothing is needed."""
    complete: bool


def pending_pods(
    seats: Seats,
    pods: Sequence[PodInfo],
    shapes: Sequence[Shape],
    *,
    most: int,
    solve: Solver | None = None,
    stop: Stop = never,
    progress: Progress = _silent,
) -> PendingPods:
    """Place pods where they fit; then ask, for each shape, how many new nodes the others need.

    most: nodes that are added of one shape; solve: for closer bounds, and for a mix of shapes.
    """
    mark = seats.mark()
    ordered = in_turn(pods)
    seated = seats.seat_all(
        ordered, stop=stop, progress=lambda done: progress(f"{part_of(done, len(pods), 'pod')} placed")
    )
    left = [pod for pod in ordered if pod.uid in seated.rejected]
    needed = nodes_needed(seats, left, shapes, most=most, solve=solve, stop=stop, progress=progress)
    mix = cheapest_mix(seats, left, needed, most=most, solve=solve) if solve is not None and not stop() else None
    seats.undo_to(mark)
    complete = seated.complete and all(one.complete for one in needed)
    return PendingPods(len(pods), len(seated.placed), _rejections(left, seated.rejected), needed, mix, complete)


def nodes_needed(
    seats: Seats,
    pods: Sequence[PodInfo],
    shapes: Sequence[Shape],
    *,
    most: int,
    solve: Solver | None = None,
    stop: Stop = never,
    progress: Progress = _silent,
) -> tuple[NodesNeeded, ...]:
    """Return for each shape what pods without a place need: first those that seat most, the cheapest of them first.

    Where prices are not known, the one with the fewest nodes comes first.
    """
    found = [
        _needed(seats, pods, shape, most=most, solve=solve, stop=stop, progress=progress) for shape in shapes if pods
    ]
    unpriced = any(one.hourly is None for one in found)
    return tuple(sorted(found, key=lambda one: (-one.seated, one.nodes if unpriced else one.hourly, one.shape.like)))


def _needed(
    seats: Seats,
    pods: Sequence[PodInfo],
    shape: Shape,
    *,
    most: int,
    solve: Solver | None,
    stop: Stop,
    progress: Progress,
) -> NodesNeeded:
    start = seats.mark()
    made = new_nodes(seats.cluster, shape)
    found = Seated()
    hopeless: dict[PodTemplate, str] = {}
    new, nodes = set[str](), 0
    for number, pod in enumerate(pods):
        if stop():
            found.complete = False
            break
        message = hopeless.get(pod.template)
        if message is not None:
            found.rejected[pod.uid] = message
            continue
        answer, mark, more = seats.seat(pod), seats.mark(), 0
        # a gang that must be together may need several nodes at a time
        most_more = min(most - nodes, max([1, *(gang.size for gang in seats.gangs(pod) if gang.levels)]))
        while answer.host is None and more < most_more:
            node, own = next(made)
            seats.set_node(node)
            for each in own:
                seats.put(each, node.metadata.name)
            new.add(node.metadata.name)
            more += 1
            answer = seats.seat(pod)
        if answer.host is not None:
            nodes += more
            found.placed[pod.uid] = answer.host
        else:
            seats.undo_to(mark)
            reason = answer.text if most_more else f"more than {most:,} new nodes"
            found.rejected[pod.uid] = reason
            if seats.is_alike(pod):
                hopeless[pod.template] = reason
        if number % _EVERY == 0:
            progress(f"like {shape.like}: {plural(nodes, 'new node')}, {part_of(number, len(pods), 'pod')} decided")
    seats.drop_short_gangs(pods, found)
    offered = _offered(seats, shape)
    seats.undo_to(start)
    seated = [pod for pod in pods if pod.uid in found.placed]
    on_new = [pod for pod in seated if found.placed[pod.uid] in new]  # others found room once these were there
    bound = room.least_nodes(on_new, offered) if nodes else 0
    if solve is not None and nodes > bound:
        packed = bounds.pack([(pod, frozenset({0})) for pod in on_new], [offered], [1.0], solve)
        bound = max(bound, whole(packed.bound))
    hourly = shape.price * nodes if shape.price is not None else None
    return NodesNeeded(shape, nodes, len(seated), _rejections(pods, found.rejected), bound, hourly, found.complete)


def cheapest_mix(
    seats: Seats, pods: Sequence[PodInfo], needed: Sequence[NodesNeeded], *, most: int, solve: Solver
) -> NodeMix | None:
    """Return the cheapest new nodes of the shapes in `needed` that give as many pods a place; None if none does.

    The solver proposes nodes by resources; the cycle places the pods on them, and takes more where rules ask for it.
    """
    shapes = [one.shape for one in needed]
    if not shapes or not pods or not needed[0].seated:
        return None
    priced = all(shape.price is not None for shape in shapes)
    costs = [max(shape.price or 0.0, TOLERANCE) if priced else 1.0 for shape in shapes]
    taking = _shapes_that_take(seats, pods, shapes)
    able = [(pod, taking[pod.template]) for pod in pods if taking[pod.template]]
    packed = bounds.pack(able, [_offered(seats, shape) for shape in shapes], costs, solve)
    best = needed[0]
    alone = NodeMix((NewNodesOfShape(best.shape, best.nodes),), best.seated, best.hourly, 0.0)
    found = _mixed(seats, able, shapes, costs, packed.nodes, priced=priced, most=most) if packed.nodes else alone
    if (-alone.seated, alone.cost) <= (-found.seated, found.cost):
        found = alone
    return replace(found, bound=packed.bound if found.seated == len(able) else 0.0)


def _shapes_that_take(
    seats: Seats, pods: Sequence[PodInfo], shapes: Sequence[Shape]
) -> dict[PodTemplate, frozenset[int]]:
    """Return by template the shapes of which an empty node takes a pod."""
    found: dict[PodTemplate, frozenset[int]] = {pod.template: frozenset() for pod in pods}
    first = {pod.template: pod for pod in reversed(pods)}
    for at, shape in enumerate(shapes):
        mark = seats.mark()
        node, own = next(new_nodes(seats.cluster, shape))
        seats.set_node(node)
        for each in own:
            seats.put(each, node.metadata.name)
        row = seats.cluster.nodes.rows[node.metadata.name]
        for template, pod in first.items():
            if row in seats.ranked(pod)[0]:
                found[template] |= {at}
        seats.undo_to(mark)
    return found


def _mixed(
    seats: Seats,
    pods: Sequence[tuple[PodInfo, frozenset[int]]],
    shapes: Sequence[Shape],
    costs: Sequence[float],
    proposed: Sequence[int],
    *,
    priced: bool,
    most: int,
) -> NodeMix:
    """Place pods on proposed nodes, and on one more where that is not enough."""
    start = seats.mark()
    made = [new_nodes(seats.cluster, shape) for shape in shapes]
    names: list[tuple[int, str]] = []

    def add(shape: int) -> None:
        node, own = next(made[shape])
        seats.set_node(node)
        for each in own:
            seats.put(each, node.metadata.name)
        names.append((shape, node.metadata.name))

    for shape, count in enumerate(proposed):
        for _ in range(min(count, most)):
            add(shape)
    seated = Seated()
    for pod, taking in pods:
        answer = seats.seat(pod)
        for shape in sorted(taking, key=lambda at: costs[at]):
            if answer.host is not None or len(names) >= most:
                break
            mark = seats.mark()
            add(shape)
            answer = seats.seat(pod)
            if answer.host is None:
                seats.undo_to(mark)
                names.pop()
        if answer.host is not None:
            seated.placed[pod.uid] = answer.host
        else:
            seated.rejected[pod.uid] = answer.text
    seats.drop_short_gangs([pod for pod, _ in pods], seated)
    hosts = set(seated.placed.values())
    used = Counter(shape for shape, name in names if name in hosts)
    seats.undo_to(start)
    parts = tuple(NewNodesOfShape(shapes[at], count) for at, count in sorted(used.items()))
    hourly = sum(part.nodes * (part.shape.price or 0.0) for part in parts) if priced else None
    return NodeMix(parts, len(seated.placed), hourly, 0.0)


def _offered(seats: Seats, shape: Shape) -> Mapping[str, int]:
    """Return what an empty node of a shape offers, without what its DaemonSet pods take."""
    own = room.total(pod for pod in seats.cluster.pods_on(shape.like).values() if is_of_node(pod))
    return {resource: amount - own.get(resource, 0) for resource, amount in shape.allocatable.items()}


# --- what if a zone is lost ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loss:
    """What becomes of the pods of nodes that are lost together."""

    label: str
    value: str
    nodes: int
    pods: int
    """Pods on them that a controller would create again; DaemonSet pods and static pods go with their nodes."""
    gone: int
    """Pods without a controller: nothing creates them again."""
    placed: int
    """Those that have a node then; with the `rejected` ones of them, all, unless the work was stopped."""
    rejected: tuple[Rejection, ...]
    evicted: int
    """Pods of other nodes that were preempted for them; those without a place are among `rejected`."""
    bound: int
    """Pods without a place at least, by resources alone."""
    needed: tuple[NodesNeeded, ...]
    complete: bool

    @property
    def unplaced(self) -> int:
        """Return how many pods have no place."""
        return sum(one.pods for one in self.rejected)

    @property
    def missing(self) -> int:
        """Return how many pods do not run afterwards: they have no place, or nothing creates them again."""
        return self.unplaced + self.gone


def values_of(seats: Seats, label: str) -> list[str]:
    """Return the values of a label of nodes."""
    return sorted({info.labels[label] for info in seats.cluster.nodes.infos if label in info.labels})


def lose(
    seats: Seats,
    label: str,
    value: str,
    *,
    shapes: Sequence[Shape] = (),
    most: int,
    preempts: bool = False,
    solve: Solver | None = None,
    stop: Stop = never,
    progress: Progress = _silent,
) -> Loss:
    """Remove the nodes with a label, and place their pods on the others, by priority.

    Args:
        seats: the cluster.
        label: of the nodes.
        value: of the label.
        shapes: of the new nodes that pods without a place may need; those that have the label and value are left out.
        most: new nodes of one shape.
        preempts: whether pods of lower priority on the other nodes make room.
        solve: for closer bounds.
        stop: see `Seats`.
        progress: takes lines.
    """
    cluster, mark = seats.cluster, seats.mark()
    names = sorted(info.name for info in cluster.nodes.infos if info.labels.get(label) == value)
    lost = set(names)
    shapes = [
        one
        for one in shapes
        if one.like not in lost and cluster.nodes.infos[cluster.nodes.rows[one.like]].labels.get(label) != value
    ]
    there = [pod for name in names for pod in seats.remove_node(name) if not is_of_node(pod)]
    ordered = in_turn(pod for pod in there if pod.template.controller is not None)
    bound = _least_unplaced(seats, ordered, preempts=preempts, solve=solve)

    def show(done: int) -> None:
        if done % _EVERY == 0:
            progress(f"{label}={value} lost: {part_of(done, len(ordered), 'pod')} placed")

    seated = seats.seat_all(ordered, stop=stop, progress=show)
    left = [pod for pod in ordered if pod.uid in seated.rejected]
    evicted = 0
    if preempts and left:
        evicted, left, messages = seats.preempt(left, stop=stop)
        seated.rejected = messages
    placed = sum(cluster.node_of(pod.uid) is not None for pod in ordered)
    needed = nodes_needed(seats, left, shapes, most=most, solve=solve, stop=stop, progress=progress)
    seats.undo_to(mark)
    complete = seated.complete and all(one.complete for one in needed) and not stop()
    return Loss(
        label,
        value,
        len(names),
        len(ordered),
        len(there) - len(ordered),
        placed,
        _rejections(left, seated.rejected),
        evicted,
        bound,
        needed,
        complete,
    )


def _least_unplaced(seats: Seats, pods: Sequence[PodInfo], *, preempts: bool, solve: Solver | None) -> int:
    """Return how many pods at least have no room; with preemption, of them and of all that they may evict."""
    mark, asked = seats.mark(), list(pods)
    if preempts and pods:
        highest = max(pod.priority for pod in pods)
        lower = [pod for pod in seats.cluster.pods.values() if pod.priority < highest and not is_of_node(pod)]
        asked += [seats.take_off(pod) for pod in lower]
    usable = seats.may_take(asked)
    bound = room.least_unplaced(seats.cluster, asked, usable)
    if solve is not None:
        bound = max(bound, bounds.least_unplaced(seats.cluster, asked, usable, solve))
    seats.undo_to(mark)
    return bound
