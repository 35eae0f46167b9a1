"""The cheapest moves that make room, as an integer program over resources and budgets. Pure.

Two programs. The bound lets a replacement take any room that is free in the end, on any node: no plan beats it. The
plan is stricter: a replacement goes to a node that takes it now, while the old pods still count. So every pod that
gives way has its place before anything is evicted. Both count pods by node and template, not one by one.

What cannot matter is left out, so that the programs stay small in large clusters: nodes where the budgets do not allow
enough pods to leave, and where replacements go if so many nodes take them that one is always left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import TypeAlias

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.preempt.victims import Budgets
from kube_policy_scheduler.tooling.capacity.room import SLOTS, requests_of
from kube_policy_scheduler.tooling.programs import Program, Solver, whole
from kube_policy_scheduler.tooling.rebalancing.moves import MoveBudgets, workload_of

MOST_VARIABLES = 100_000
"""Larger programs are not solved: their first linear program alone would take longer than the solver has."""
_AGAIN = 0.01
"""Added to the cost of a pod that was in a plan which did not hold: of equally cheap plans, another is found."""

Unit: TypeAlias = tuple[Sequence[PodInfo], GangRequirement | None]
"""Pending pods, and the gang that they make up, if any."""

_Arrival: TypeAlias = tuple[tuple[tuple[str, int], ...], frozenset[str] | None]
"""What a replacement requests, and the nodes that take it, if that is known."""


@dataclass(frozen=True, slots=True)
class _Leaving:
    """Pods of one node that are alike."""

    node: str
    pods: list[PodInfo]
    variable: int
    """How many of them move."""


@dataclass(frozen=True, slots=True)
class Host:
    """A node that may have pending pods of one kind."""

    node: str
    fitting: int
    """Pods that have room now."""
    most: int
    """Pods that have room if others leave, within the budgets."""
    each: float
    """By so many pods that leave, at least, each one beyond `fitting` is paid."""


class Hosts:
    """Which nodes may have which pending pods, by resources and budgets alone."""

    def __init__(
        self, cluster: Cluster, units: Sequence[Unit], movable: Mapping[str, Sequence[PodInfo]], *, leaving: int
    ) -> None:
        """Look at each node and kind of pending pod.

        Args:
            cluster: as it is.
            units: pending pods.
            movable: by node: the pods that may give way.
            leaving: at most this many pods leave one node.
        """
        pods = [pod for each, _ in units for pod in each]
        self.free = _free(cluster, {name for pod in pods for name in requests_of(pod)})
        offered = {
            (name, resource): _sums(movable.get(name, ()), resource, leaving)
            for name, room in self.free.items()
            for resource in room
        }
        counts: Counter[object] = Counter(map(_kind, pods))
        self.of: dict[object, list[Host]] = {}
        for pod in pods:
            if _kind(pod) not in self.of:
                self.of[_kind(pod)] = [
                    host
                    for name, room in self.free.items()
                    if (host := _host(name, requests_of(pod), room, offered, counts[_kind(pod)])) is not None
                ]

    @property
    def names(self) -> frozenset[str]:
        """Return all of them."""
        return frozenset(host.node for hosts in self.of.values() for host in hosts)

    def least(self, placed: Iterable[PodInfo]) -> int:
        """Return how many pods must leave at least so that these have room: each kind of them on its own."""
        found = 0
        for kind, count in Counter(map(_kind, placed)).items():
            prices = sorted(
                chain.from_iterable(
                    chain(repeat(0.0, host.fitting), repeat(host.each, host.most - host.fitting))
                    for host in self.of.get(kind, ())
                )
            )
            found = max(found, whole(sum(prices[:count])))
        return found


class RoomProgram:
    """Which pods give way so that as many pending pods as possible have room, at the least number of moves."""

    def __init__(
        self,
        cluster: Cluster,
        units: Sequence[Unit],
        movable: Mapping[str, Sequence[PodInfo]],
        budgets: MoveBudgets,
        hosts: Hosts,
        *,
        most: int,
        targets: Mapping[PodTemplate, frozenset[str]] | None = None,
        taking: Mapping[PodTemplate, frozenset[str]] | None = None,
    ) -> None:
        """State the program.

        Args:
            cluster: as it is.
            units: pending pods.
            movable: by node: the pods that may give way.
            budgets: of the moves.
            hosts: the nodes that may have pending pods.
            most: at most this many pods move.
            targets: by template, where that is known: the nodes that take a replacement now; else all that have room
                now. None: all that have room in the end, so that the program is a bound.
            taking: by template: the nodes that take a pending pod if every movable pod is gone; None: all with enough
                resources.
        """
        self._cluster, self._program, self._most = cluster, Program(), most
        self._units, self._targets = units, targets
        self._use: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        """By node and resource: what comes, minus what leaves."""
        self._arrive: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        self._leaving: list[_Leaving] = []
        self._again: Counter[int] = Counter()
        self._seats: list[int] = []
        self._demanded: list[tuple[str, Host, int]] = []
        self._seat(hosts, taking)
        used = {name: movable[name] for name in dict.fromkeys(name for name, _, _ in self._demanded) if name in movable}
        resources = {name for pods, _ in units for pod in pods for name in requests_of(pod)}
        self._names = [info.name for info in cluster.nodes.infos]
        self._free = _free(cluster, resources.union(*(_held(pod) for pods in used.values() for pod in pods)))
        self._columns = {
            resource: np.array([self._free[name][resource] for name in self._names])
            for resource in next(iter(self._free.values()), {})
        }
        """By resource: `int64[nodes]`, what is free."""
        self._move(used, budgets)
        if not self.is_too_large:
            self._limit()
        self._placed = self._program.row([(seat, 1.0) for seat in self._seats], least=0)

    @property
    def is_too_large(self) -> bool:
        """Return whether the program has too many variables to be solved."""
        return self._program.size > MOST_VARIABLES

    def _seat(self, hosts: Hosts, taking: Mapping[PodTemplate, frozenset[str]] | None) -> None:
        """Add the places of pending pods."""
        for pods, gang in self._units:
            members: list[int] = []
            for same in _alike(pods).values():
                allowed = taking[same[0].template] if taking is not None else None
                needs, places = requests_of(same[0]), list[int]()
                for host in hosts.of[_kind(same[0])]:
                    if allowed is None or host.node in allowed:
                        place = self._program.variable(min(host.most, len(same)))
                        places.append(place)
                        self._demanded.append((host.node, host, place))
                        for resource, amount in needs.items():
                            self._use[host.node, resource].append((place, amount))
                self._program.row([(place, 1) for place in places], most=len(same))
                members += places
            self._seats += members
            if gang is not None and members:
                here = gang.filled(self._cluster.counters.group_size)
                whole_gang = self._program.variable(1)
                every = [(place, 1.0) for place in members]
                self._program.row([*every, (whole_gang, -float(max(1, gang.size - here)))], least=0)
                self._program.row([*every, (whole_gang, -float(len(pods)))], most=0)

    def _move(self, movable: Mapping[str, Sequence[PodInfo]], budgets: MoveBudgets) -> None:
        """Add the pods that give way, and where their replacements go."""
        program, disruptions = self._program, Budgets(self._cluster)
        limits: dict[tuple[str, str], int] = {}
        counted: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        alike: dict[_Arrival, list[_Leaving]] = defaultdict(list)
        for name, pods in movable.items():
            for same in _alike(pods).values():
                first = same[0]
                leaving = _Leaving(name, same, program.variable(len(same)))
                self._leaving.append(leaving)
                alike[self._arrival(first.template)].append(leaving)
                for resource, amount in _held(first).items():
                    self._use[name, resource].append((leaving.variable, -float(amount)))
                kinds = [("node", name, budgets.node), ("workload", workload_of(first), budgets.workload)]
                kinds += [("namespace", first.namespace, budgets.namespace), ("total", "", self._most)]
                for protecting in disruptions.protecting(first):
                    key = f"{first.namespace}/{protecting.metadata.name}"
                    kinds.append(("budget", key, protecting.status.disruptions_allowed))
                for kind, key, most in kinds:
                    limits[kind, key] = max(0, most)
                    counted[kind, key].append((leaving.variable, 1.0))
        for arrival, leaving_pods in alike.items():
            self._arrivals(arrival, leaving_pods, movable)
            if self.is_too_large:
                return
        for each, terms in counted.items():
            program.row(terms, most=limits[each])
        paid: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for one in self._leaving:
            paid[one.node].append((one.variable, 1.0))
        for name, host, place in self._demanded:  # follows for whole numbers, but not for their relaxation
            if host.each and name in paid:
                program.row([*paid[name], (place, -host.each)], least=-host.each * host.fitting)

    def _arrival(self, template: PodTemplate) -> _Arrival:
        amounts = {**template.demand.requests, SLOTS: 1}
        allowed = self._targets.get(template) if self._targets is not None else None
        return tuple(sorted((name, amount) for name, amount in amounts.items() if amount)), allowed

    def _arrivals(
        self, arrival: _Arrival, leaving: Sequence[_Leaving], movable: Mapping[str, Sequence[PodInfo]]
    ) -> None:
        """Add where replacements that are alike go, if they may find no room."""
        program, (needs, allowed) = self._program, arrival
        if allowed is None:
            fits = np.logical_and.reduce([self._columns[resource] >= amount for resource, amount in needs])
            allowed = frozenset(self._names[row] for row in np.flatnonzero(fits))
        if len(allowed) > self._most + sum(len(pods) for pods, _ in self._units):
            return  # one of them has neither another replacement, nor a pending pod, nor the old pod
        places = sorted(allowed)
        if self._targets is None:
            places += [
                name
                for name, pods in movable.items()
                if name not in allowed
                and all(
                    self._free[name][r] + sum(_held(pod).get(r, 0) for pod in pods) >= amount for r, amount in needs
                )
            ]
            if program.size + len(places) > MOST_VARIABLES:
                return  # the bound is weaker, and holds
        most = sum(len(one.pods) for one in leaving)
        balance: list[tuple[int, float]] = [(one.variable, -1.0) for one in leaving]
        for name in places:
            arriving = program.variable(min(most, self._most))
            balance.append((arriving, 1.0))
            for resource, amount in needs:
                self._use[name, resource].append((arriving, amount))
                self._arrive[name, resource].append((arriving, amount))
        program.row(balance, least=0, most=0)

    def _limit(self) -> None:
        for (name, resource), terms in self._use.items():
            if all(amount <= 0 for _, amount in terms):
                continue
            scale = max(1, self._free[name].get(resource, 0), *(abs(amount) for _, amount in terms))
            room = self._free[name].get(resource, 0) / scale
            self._program.row([(variable, amount / scale) for variable, amount in terms], most=room)
        if self._targets is not None:
            for (name, resource), terms in self._arrive.items():
                scale = max(1, *(amount for _, amount in terms))
                room = self._free[name].get(resource, 0) / scale
                self._program.row([(variable, amount / scale) for variable, amount in terms], most=room)

    def least_moves(self, solve: Solver, placed: int) -> int:
        """Return how many moves every plan needs that gives so many pods a place.

        One more than `most` if that is not enough.
        """
        if self._placed < 0 or placed == 0:
            return self._most + 1 if placed else 0
        bound = self._fewest(solve, placed)[0]
        return self._most + 1 if bound == np.inf else whole(bound)

    def _fewest(self, solve: Solver, placed: int) -> tuple[float, np.ndarray[tuple[int], np.dtype[np.float64]] | None]:
        """Return the bound and the values of the program that gives so many pods a place with few moves."""
        program = self._program
        program.limit(self._placed, least=placed)
        program.price(
            {one.variable: 1.0 + _AGAIN * self._again[one.variable] / (self._most + 1) for one in self._leaving}
        )
        found = solve(program)
        return found.bound, found.values

    def _most_seats(self, solve: Solver) -> int | None:
        """Return how many pods get a place; None if no plan was found."""
        self._program.limit(self._placed, least=0)
        self._program.price(dict.fromkeys(self._seats, -1.0))
        values = solve(self._program).values
        return None if values is None else round(float(sum(values[seat] for seat in self._seats)))

    def choose(self, solve: Solver, *, placed: int | None) -> tuple[int, list[tuple[str, PodInfo]]] | None:
        """Return how many pods get a place, and the pods that move, with their nodes; None if none was found in time.

        placed: this many pods are to have a place; None: as many as possible.
        """
        if self._placed < 0:
            return 0, []
        if placed is None:
            placed = self._most_seats(solve)
        if placed is None:
            return None
        bound, values = self._fewest(solve, placed)
        if values is None:
            return (0, []) if bound == np.inf else None
        chosen = [
            (one.node, pod) for one in self._leaving for pod in one.pods[: round(float(values[one.variable]))]
        ]  # fmt: skip
        return round(float(sum(values[seat] for seat in self._seats))), chosen

    def avoid(self, uids: Set[str]) -> None:
        """Prefer other pods to these where as few of them are enough."""
        self._again.update(one.variable for one in self._leaving if any(pod.uid in uids for pod in one.pods))


def least_leaving(missing: Mapping[str, int], movable: Sequence[PodInfo]) -> int | None:
    """Return how many pods of a node must leave at least so that this much is free; None: all are not enough.

    Of each resource, the pods that have the most of it leave.
    """
    least = 0
    for resource, amount in missing.items():
        if amount > 0:
            enough = _first(_sums(movable, resource, len(movable)), amount)
            if enough is None:
                return None
            least = max(least, enough)
    return least


def _sums(movable: Sequence[PodInfo], resource: str, most: int) -> list[int]:
    """Return what is free at most once 1, 2 … pods leave."""
    sizes = sorted((_held(pod).get(resource, 0) for pod in movable), reverse=True)
    return list(accumulate(sizes[:most]))


def _first(sums: Sequence[int], amount: int) -> int | None:
    return next((at for at, has in enumerate(sums, 1) if has >= amount), None)


def _host(
    name: str,
    needs: Mapping[str, int],
    room: Mapping[str, int],
    offered: Mapping[tuple[str, str], Sequence[int]],
    pending: int,
) -> Host | None:
    def leaving(count: int) -> int | None:
        """Return how many pods leave at least for so many that come."""
        found = 0
        for resource, amount in needs.items():
            missing = count * amount - room[resource]
            if missing > 0:
                enough = _first(offered[name, resource], missing)
                if enough is None:
                    return None
                found = max(found, enough)
        return found

    prices: Iterator[int | None] = (leaving(count) for count in range(1, pending + 1))
    known: list[int] = []
    for price in prices:
        if price is None:
            break
        known.append(price)
    if not known:
        return None
    fitting = sum(price == 0 for price in known)
    paid = [price / at for at, price in enumerate(known[fitting:], 1)]
    return Host(name, fitting, len(known), min(paid, default=0.0))


def _free(cluster: Cluster, resources: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return by node and resource what is free; 0 on nodes that are more than full."""
    nodes = cluster.nodes
    columns: dict[str, list[int]] = {}
    for resource in sorted(resources):
        taken = nodes.pod_count if resource == SLOTS else nodes.requested(resource)
        columns[resource] = np.maximum(nodes.allocatable(resource) - taken, 0).tolist()
    return {
        info.name: {resource: column[nodes.rows[info.name]] for resource, column in columns.items()}
        for info in nodes.infos
    }


def _held(pod: PodInfo) -> Mapping[str, int]:
    """Return what a pod gives back when it leaves its node."""
    return {**pod.demand.requests, SLOTS: 1}


def _kind(pod: PodInfo) -> object:
    return pod.template, tuple(sorted(pod.demand.requests.items()))


def _alike(pods: Sequence[PodInfo]) -> dict[object, list[PodInfo]]:
    """Return pods by what decides where they fit: their template, and what they take now."""
    found: dict[object, list[PodInfo]] = {}
    for pod in pods:
        found.setdefault(_kind(pod), []).append(pod)
    return found
