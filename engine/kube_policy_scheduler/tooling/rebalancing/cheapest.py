"""The cheapest moves that make room, as an integer program over resources and budgets. Pure.

Two programs. The bound lets a replacement take any room that is free in the end, on any node: no plan beats it. The
plan is stricter: a replacement goes to a node that takes it now, while the old pods still count. So every pod that
gives way has its place before anything is evicted. Both count pods by node and template, not one by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.permit import GangRequirement
from kube_policy_scheduler.framework.victims import Budgets
from kube_policy_scheduler.tooling.capacity.room import SLOTS, requests_of
from kube_policy_scheduler.tooling.programs import MOST_VARIABLES, Program, Solver, whole
from kube_policy_scheduler.tooling.rebalancing.moves import MoveBudgets, workload_of

_AGAIN = 0.01
"""Added to the cost of a pod that was in a plan which did not hold: of equally cheap plans, another is found."""


@dataclass(frozen=True, slots=True)
class _Leaving:
    """Pods of one node that are alike."""

    node: str
    pods: list[PodInfo]
    variable: int
    """How many of them move."""


class RoomProgram:
    """Which pods give way so that as many pending pods as possible have room, at the least number of moves."""

    def __init__(
        self,
        cluster: Cluster,
        units: Sequence[tuple[Sequence[PodInfo], GangRequirement | None]],
        movable: Mapping[str, Sequence[PodInfo]],
        budgets: MoveBudgets,
        *,
        targets: Callable[[PodTemplate, PodInfo], frozenset[str]] | None = None,
        hosts: Callable[[PodInfo], frozenset[str]] | None = None,
    ) -> None:
        """State the program.

        Args:
            cluster: as it is.
            units: pending pods, and the gang that they make up, if any.
            movable: by node: the pods that may give way.
            budgets: of the moves.
            targets: the nodes that take a replacement of a template now, with one pod of it; None: all that have room
                in the end, so that the program is a bound.
            hosts: the nodes that take a pending pod if every movable pod is gone; None: all with enough resources.
        """
        self._cluster, self._program = cluster, Program()
        self._units, self._strict = units, targets is not None
        self._resources = sorted({name for pods, _ in units for pod in pods for name in requests_of(pod)})
        self._resources = sorted({*self._resources, *(r for pods in movable.values() for p in pods for r in _held(p))})
        self._use: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        """By node and resource: what comes, minus what leaves."""
        self._arrive: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        self._leaving: list[_Leaving] = []
        self.pending = sum(len(pods) for pods, _ in units)
        self._weight = min(budgets.total, sum(map(len, movable.values()))) + 1
        """One more pod with a place is worth any number of moves."""
        self._seats: list[int] = []
        free = self._free()
        used = self._seat(free, movable, hosts)
        self._move({name: movable[name] for name in used if name in movable}, free, targets, budgets)
        if not self.is_too_large:
            self._limit(free)

    @property
    def is_too_large(self) -> bool:
        """Return whether the program has too many variables to be solved."""
        return self._program.size > MOST_VARIABLES

    def _free(self) -> dict[str, dict[str, int]]:
        """Return by node and resource what is free; 0 on nodes that are more than full."""
        nodes, found = self._cluster.nodes, dict[str, dict[str, int]]()
        by: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        for resource in self._resources:
            taken = nodes.pod_count if resource == SLOTS else nodes.requested(resource)
            by[resource] = np.maximum(nodes.allocatable(resource) - taken, 0)
        for info in nodes.infos:
            row = nodes.rows[info.name]
            found[info.name] = {resource: int(by[resource][row]) for resource in self._resources}
        return found

    def _seat(
        self,
        free: Mapping[str, Mapping[str, int]],
        movable: Mapping[str, Sequence[PodInfo]],
        hosts: Callable[[PodInfo], frozenset[str]] | None,
    ) -> list[str]:
        """Add the places of pending pods, and return the nodes that may have some."""
        offered: dict[str, Counter[str]] = {}
        for name, room in free.items():
            offered[name] = Counter(room)
            for pod in movable.get(name, ()):
                offered[name].update(_held(pod))
        used: dict[str, None] = {}
        for pods, gang in self._units:
            members: list[int] = []
            for same in _alike(pods).values():
                allowed = hosts(same[0]) if hosts is not None else None
                needs, places = requests_of(same[0]), list[int]()
                for name, most in offered.items():
                    if (allowed is None or name in allowed) and all(most[r] >= amount for r, amount in needs.items()):
                        place = self._program.variable(len(same), cost=-float(self._weight))
                        places.append(place)
                        used[name] = None
                        for resource, amount in needs.items():
                            self._use[name, resource].append((place, amount))
                self._program.row([(place, 1) for place in places], most=len(same))
                members += places
            self._seats += members
            if gang is not None and members:
                here = gang.filled(self._cluster.counters.group_size)
                whole_gang = self._program.variable(1)
                every = [(place, 1.0) for place in members]
                self._program.row([*every, (whole_gang, -float(max(1, gang.size - here)))], least=0)
                self._program.row([*every, (whole_gang, -float(len(pods)))], most=0)
        return list(used)

    def _move(
        self,
        movable: Mapping[str, Sequence[PodInfo]],
        free: Mapping[str, Mapping[str, int]],
        targets: Callable[[PodTemplate, PodInfo], frozenset[str]] | None,
        budgets: MoveBudgets,
    ) -> None:
        """Add the pods that give way, and where their replacements go."""
        program, disruptions = self._program, Budgets(self._cluster)
        limits: dict[tuple[str, str], int] = {}
        counted: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        by_template: dict[PodTemplate, list[_Leaving]] = defaultdict(list)
        for name, pods in movable.items():
            for same in _alike(pods).values():
                first = same[0]
                leaving = _Leaving(name, same, program.variable(len(same), cost=1.0))
                self._leaving.append(leaving)
                by_template[first.template].append(leaving)
                for resource, amount in _held(first).items():
                    self._use[name, resource].append((leaving.variable, -float(amount)))
                kinds = [("node", name, budgets.node), ("workload", workload_of(first), budgets.workload)]
                kinds += [("namespace", first.namespace, budgets.namespace), ("total", "", budgets.total)]
                for one in disruptions.protecting(first):
                    key = f"{first.namespace}/{one.metadata.name}"
                    kinds.append(("budget", key, one.status.disruptions_allowed))
                for kind, key, most in kinds:
                    limits[kind, key] = max(0, most)
                    counted[kind, key].append((leaving.variable, 1.0))
        for template, leaving_pods in by_template.items():
            first = leaving_pods[0].pods[0]
            allowed = targets(template, first) if targets is not None else None
            needs = {**template.demand.requests, SLOTS: 1}
            most = sum(len(one.pods) for one in leaving_pods)
            balance: list[tuple[int, float]] = [(one.variable, -1.0) for one in leaving_pods]
            for name in free if allowed is None else sorted(allowed):
                arriving = program.variable(most)
                balance.append((arriving, 1.0))
                for resource, amount in needs.items():
                    if amount:
                        self._use[name, resource].append((arriving, amount))
                        self._arrive[name, resource].append((arriving, amount))
                if program.size > MOST_VARIABLES:
                    return
            program.row(balance, least=0, most=0)
        for each, terms in counted.items():
            program.row(terms, most=limits[each])

    def _limit(self, free: Mapping[str, Mapping[str, int]]) -> None:
        for (name, resource), terms in self._use.items():
            scale = max(1, free[name].get(resource, 0), *(abs(amount) for _, amount in terms))
            room = free[name].get(resource, 0) / scale
            self._program.row([(variable, amount / scale) for variable, amount in terms], most=room)
        if self._strict:
            for (name, resource), terms in self._arrive.items():
                scale = max(1, *(amount for _, amount in terms))
                room = free[name].get(resource, 0) / scale
                self._program.row([(variable, amount / scale) for variable, amount in terms], most=room)

    def least_moves(self, solve: Solver, placed: int) -> int:
        """Return how many moves every plan needs that gives so many pods a place."""
        bound = solve(self._program).bound
        return whole(bound + self._weight * placed)

    def choose(self, solve: Solver) -> tuple[int, list[tuple[str, PodInfo]]] | None:
        """Return how many pods get a place, and the pods that move, with their nodes; None if none was found."""
        values = solve(self._program).values
        if values is None:
            return None
        chosen = [
            (one.node, pod) for one in self._leaving for pod in one.pods[: round(float(values[one.variable]))]
        ]  # fmt: skip
        return round(float(sum(values[seat] for seat in self._seats))), chosen

    def avoid(self, chosen: Sequence[tuple[str, PodInfo]]) -> None:
        """Prefer other pods to these where as few of them are enough."""
        uids = {pod.uid for _, pod in chosen}
        for one in self._leaving:
            if any(pod.uid in uids for pod in one.pods):
                self._program.add_cost(one.variable, _AGAIN / self._weight)


def _held(pod: PodInfo) -> Mapping[str, int]:
    """Return what a pod gives back when it leaves its node."""
    return {**pod.demand.requests, SLOTS: 1}


def _alike(pods: Sequence[PodInfo]) -> dict[object, list[PodInfo]]:
    """Return pods by what decides where they fit: their template, and what they take now."""
    found: dict[object, list[PodInfo]] = {}
    for pod in pods:
        found.setdefault((pod.template, tuple(sorted(pod.demand.requests.items()))), []).append(pod)
    return found
