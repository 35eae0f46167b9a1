"""The reservation of EASY backfill: when the first pod or gang of an order fits at the latest, and on which nodes.

Running pods are taken away from the columns in the order in which they are expected to end, until all that is needed
fits; then they come back. Source: D. Lifka, "The ANL/IBM SP scheduling system", 1995: one reservation, for the first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from heapq import nsmallest
from typing import NamedTuple

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.search_work import search_work
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.departures import Departures
from kube_policy_scheduler.framework.queue.backfill_rule import BackfillRule

MOST_ENDS = 4096
"""Pods that are taken away at most to find a moment: about 0.2 s."""
PODS = "pods"


class Unreserved(Enum):
    """Why no room is reserved, so that nobody waits for it; as people read it."""

    NEVER = "it does not fit in time, even once the pods have ended that say how long they run"
    CUT = f"it does not fit once the next {MOST_ENDS:,} pods have ended, and later ends are not looked at"


class End(NamedTuple):
    """The end of a running pod as it is expected."""

    at: float
    """Unix seconds."""
    uid: str
    """Pods that end at one moment are taken by this."""
    pod: PodInfo


class Seat(NamedTuple):
    """The place of one pod that room is reserved for."""

    pod: PodInfo
    node_name: str


Seats = Callable[[], Sequence[Seat] | None]
"""Returns places for all that a pod or its gang needs, as the cluster stands, which it leaves unchanged; None: it does
not fit."""


class StartReservation(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Room for a pod or gang from a moment on."""

    holder: str
    """The pod, or its gang, for people."""
    at: float
    """When all of it fits at the latest, Unix seconds."""
    seats: tuple[Seat, ...]
    """Where it fits then."""
    needed: Mapping[str, Counter[str]]
    """By node and resource: what the seats take, pods too."""
    gone: tuple[End, ...]
    """The pods that are expected to be gone by then."""
    ends: Mapping[str, tuple[End, ...]]
    """By node with seats: those of them that are there."""

    def free_beside(self, cluster: Cluster, node_name: str, resource: str) -> int:
        """Return how much of a resource is free at that moment on a node with seats, as the cluster stands."""
        nodes, there = cluster.nodes, cluster.pods_on(node_name)
        row = nodes.rows.get(node_name)
        if row is None:
            return -1
        used = nodes.pod_count.item(row) if resource == PODS else nodes.requested(resource).item(row)
        leaves = sum(amounts_of(end.pod)[resource] for end in self.ends.get(node_name, ()) if end.uid in there)
        return int(nodes.allocatable(resource).item(row)) - int(used) + leaves - self.needed[node_name][resource]

    def holds(self, cluster: Cluster) -> bool:
        """Return whether the seats still have room at that moment, as the cluster stands."""
        return all(
            self.free_beside(cluster, node_name, resource) >= 0
            for node_name, amounts in self.needed.items()
            for resource in amounts
        )

    def leaves_more(self, cluster: Cluster, before: StartReservation) -> bool:
        """Return whether a pod that would delay the earlier reservation might not delay this one.

        It might not if this one is on other nodes or for other pods. Or if more pods are expected to be gone when it
        begins, which leave room on its nodes, or quota. The time at which it begins does not matter.
        """
        if self._taken() != before._taken():
            return True
        gone = {end.uid for end in self.gone}.difference(end.uid for end in before.gone)
        if cluster.quota_usage is not None:
            return bool(gone)
        return any(cluster.node_of(uid) in self.needed for uid in gone)

    def _taken(self) -> Counter[tuple[PodTemplate, str]]:
        return Counter((seat.pod.template, seat.node_name) for seat in self.seats)


def reserve(
    cluster: Cluster, ends: Iterable[End], seats: Seats, *, holder: str, now: float, most_seconds: float
) -> StartReservation | Unreserved:
    """Return the earliest moment at which a pod or gang fits, and where; or why there is none.

    It is the earliest one if nothing that ends takes room away, as with a required affinity to a pod that ends.

    Args:
        cluster: with the pods that run.
        ends: of those that end, in any order.
        seats: of all that is to fit.
        holder: who the room is for, for people.
        now: Unix seconds.
        most_seconds: how far away the moment may be.
    """
    due = nsmallest(MOST_ENDS + 1, (end for end in ends if end.at <= now + most_seconds))
    is_cut = len(due) > MOST_ENDS
    del due[MOST_ENDS:]
    with _Ends(cluster, due).tried() as departing:
        found = _first_that_fits(departing, seats)
    if found is None:
        return Unreserved.CUT if is_cut else Unreserved.NEVER
    number, taken = found
    needed: dict[str, Counter[str]] = {}
    for seat in taken:
        needed.setdefault(seat.node_name, Counter()).update(amounts_of(seat.pod))
    by_node: dict[str, list[End]] = {}
    for end in due[:number]:
        node_name = cluster.node_of(end.uid)
        if node_name in needed:
            by_node.setdefault(node_name, []).append(end)
    return StartReservation(
        holder=holder,
        at=max(due[number - 1].at, now) if number else now,
        seats=tuple(taken),
        needed=needed,
        gone=tuple(due[:number]),
        ends={node_name: tuple(there) for node_name, there in by_node.items()},
    )


def expected_ends(rule: BackfillRule, frame: Frame) -> Iterator[End]:
    """Yield when the pods that run are expected to end. frame: of any pod, now."""
    for pod in frame.cluster.pods.values():
        at = rule.end_of(Frame(pod, frame.cluster, frame.now, signals=frame.signals))
        if at < math.inf:
            yield End(at, pod.uid, pod)


def amounts_of(pod: PodInfo) -> Counter[str]:
    """Return what a pod takes of a node, by resource in column units, with `pods`."""
    return Counter({**pod.demand.requests, PODS: 1})


def _first_that_fits(ends: _Ends, seats: Seats) -> tuple[int, Sequence[Seat]] | None:
    """Return how many of the pods have to be gone until all has a seat, and the seats; None: it never has.

    It looks after 0, 1, 2, 4, 8 … of them, then between the last two of these.
    """
    low, high, found = -1, 0, ends.seats_without(0, seats)
    while found is None:
        if high == ends.most:
            return None
        low, high = high, min(max(1, 2 * high), ends.most)
        found = ends.seats_without(high, seats)
    while high - low > 1:
        middle = (low + high) // 2
        earlier = ends.seats_without(middle, seats)
        if earlier is None:
            low = middle
        else:
            high, found = middle, earlier
    return high, found


class _Ends:
    """Running pods that are taken away from the columns, the first to end first, and come back at the end."""

    def __init__(self, cluster: Cluster, due: Sequence[End]) -> None:
        self._cluster, self._pods = cluster, [end.pod for end in due]
        self._departures, self._number = Departures(cluster), 0
        self.most = len(due)

    @contextmanager
    def tried(self) -> Iterator[_Ends]:
        """Take pods away in here only."""
        with self._cluster.ledger.silent(), search_work(self._cluster.store).at_once():
            try:
                yield self
            finally:
                self._departures.put_all_back()

    def seats_without(self, number: int, seats: Seats) -> Sequence[Seat] | None:
        """Return the seats without this many of the first pods; None: it does not fit."""
        self._departures.take(self._pods[self._number : number])
        self._departures.put_back(reversed(self._pods[number : self._number]))
        self._number = number
        return seats()
