"""Bounds by resources alone that look at all resources and all pods together: by linear and integer programs. Pure.

They are never weaker than those of `room`, which need no solver. Pods are counted by what they request.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.tooling.capacity.room import free, requests_of
from kube_policy_scheduler.tooling.programs import MOST_VARIABLES, TOLERANCE, Program, Solver, whole

_Kind: TypeAlias = tuple[tuple[tuple[str, int], ...], frozenset[int]]
"""What a pod requests, and the shapes that it may use."""
_MOST_KINDS = 200
"""Different requests of pods: each needs a variable in each of many small programs."""
_MOST_PATTERNS = 400


def most_removable(
    cluster: Cluster,
    sizes: Mapping[str, Mapping[str, int]],
    need: Mapping[str, int],
    usable: BoolArray,
    solve: Solver,
) -> int:
    """Return how many of some nodes can go at most: an integer program over all resources. See `room.most_removable`.

    It is a knapsack: what the nodes that go offer is at most what is free in the end.
    """
    program, rows = Program(), cluster.nodes.rows
    goes = {name: program.variable(1, cost=-1.0) for name in sizes}
    for resource in need:
        elsewhere = free(cluster, resource, usable)
        elsewhere[[rows[name] for name in sizes]] = 0
        offered = sum(size.get(resource, 0) for size in sizes.values())
        spare = int(elsewhere.sum()) + offered - need[resource]
        scale = max(1, abs(spare), offered)
        program.row([(goes[name], size.get(resource, 0) / scale) for name, size in sizes.items()], most=spare / scale)
    return len(sizes) if not sizes or program.size > MOST_VARIABLES else len(sizes) - whole(
        solve(program).bound + len(sizes)
    )  # fmt: skip


def least_unplaced(cluster: Cluster, pods: Sequence[PodInfo], usable: BoolArray, solve: Solver) -> int:
    """Return how many of some pods at least have no room: an integer program over pods and nodes.

    0 if it is too large to be solved. usable: `bool[nodes]`, those on which some of them may be.
    """
    kinds = Counter(_kind(pod) for pod in pods)
    resources = sorted({name for kind in kinds for name, _ in kind})
    rooms = {resource: free(cluster, resource, usable) for resource in resources}
    rows: list[int] = np.flatnonzero(usable).tolist()
    if not rows or len(kinds) * len(rows) > MOST_VARIABLES:
        return 0
    program = Program()
    use: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for kind, count in kinds.items():
        here: list[tuple[int, float]] = []
        for row in rows:
            most = min(count, *(int(rooms[name][row]) // amount for name, amount in kind if amount))
            if most > 0:
                variable = program.variable(most, cost=-1.0)
                here.append((variable, 1.0))
                for name, amount in kind:
                    use.setdefault((int(row), name), []).append((variable, amount))
        program.row(here, most=count)
    for (row, name), terms in use.items():
        room = int(rooms[name][row])
        program.row([(variable, amount / max(1, room)) for variable, amount in terms], most=min(room, 1))
    return whole(solve(program).bound + len(pods)) if program.size else len(pods)


@dataclass(frozen=True, slots=True)
class Packing:
    """New nodes for pods, by resources alone."""

    bound: float
    """No nodes that have room for all pods cost less."""
    nodes: tuple[int, ...]
    """By shape: nodes that have room for all of them; empty if that is not known."""


def pack(
    pods: Sequence[tuple[PodInfo, frozenset[int]]],
    offered: Sequence[Mapping[str, int]],
    costs: Sequence[float],
    solve: Solver,
) -> Packing:
    """Return the cheapest nodes that have room for pods, by the patterns in which pods fill a node.

    Gilmore and Gomory (A linear programming approach to the cutting-stock problem, 1961): a linear program chooses
    among patterns; its prices of the pods lead to the next pattern. Farley's bound (1990) holds at every step.

    Args:
        pods: each with the shapes that it may use; it fits an empty node of one of them.
        offered: by shape: what an empty node offers.
        costs: by shape: what a node costs.
        solve: the solver.
    """
    kinds = Counter((_kind(pod), shapes) for pod, shapes in pods)
    if not kinds or len(kinds) > _MOST_KINDS:
        return Packing(0.0, ())
    names, counts = list(kinds), list(kinds.values())
    patterns: list[tuple[int, Mapping[int, int]]] = []
    for at, kind in enumerate(names):
        for shape, room in enumerate(offered):
            most = _copies(kind, shape, room)
            if most:
                patterns.append((shape, {at: min(most, counts[at])}))
    if {at for _, pattern in patterns for at in pattern} != set(range(len(names))):
        return Packing(0.0, ())
    bound = 0.0
    while len(patterns) < _MOST_PATTERNS:
        relaxed = solve(_master(patterns, counts, costs, integral=False))
        if relaxed.duals is None or relaxed.values is None:
            break
        prices, best = np.maximum(relaxed.duals, 0.0), 1.0
        found: list[tuple[int, Mapping[int, int]]] = []
        for shape, room in enumerate(offered):
            worth, pattern = _fullest(names, counts, shape, room, prices, solve)
            best = max(best, worth / costs[shape])
            if pattern and sum(float(prices[at]) * count for at, count in pattern.items()) > costs[shape] + TOLERANCE:
                found.append((shape, pattern))
        bound = max(bound, float(prices @ np.array(counts, np.float64)) / best)
        if not found or best <= 1 + TOLERANCE:
            break
        patterns += found
    values = solve(_master(patterns, counts, costs, integral=True)).values
    nodes = [0] * len(offered)
    for (shape, _), used in zip(patterns, values if values is not None else (), strict=False):
        nodes[shape] += round(float(used))
    return Packing(bound, tuple(nodes) if values is not None else ())


def _kind(pod: PodInfo) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in requests_of(pod).items() if amount > 0))


def _copies(kind: _Kind, shape: int, room: Mapping[str, int]) -> int:
    """Return how many pods of a kind an empty node of a shape takes."""
    needs, shapes = kind
    return max(0, min(room.get(name, 0) // amount for name, amount in needs)) if shape in shapes else 0


def _master(
    patterns: Sequence[tuple[int, Mapping[int, int]]], counts: Sequence[int], costs: Sequence[float], *, integral: bool
) -> Program:
    program = Program()
    rows: list[list[tuple[int, float]]] = [[] for _ in counts]
    for shape, pattern in patterns:
        used = program.variable(math.inf, cost=costs[shape], integral=integral)
        for at, count in pattern.items():
            rows[at].append((used, float(count)))
    for row, count in zip(rows, counts, strict=True):
        program.row(row, least=count)
    return program


def _fullest(
    names: Sequence[_Kind],
    counts: Sequence[int],
    shape: int,
    room: Mapping[str, int],
    prices: np.ndarray[tuple[int], np.dtype[np.float64]],
    solve: Solver,
) -> tuple[float, dict[int, int]]:
    """Return what the pods on a node are worth at most, and the pattern of those that are worth most."""
    program, chosen = Program(), dict[int, int]()
    use: dict[str, list[tuple[int, float]]] = {}
    for at, kind in enumerate(names):
        most = min(_copies(kind, shape, room), counts[at])
        if most and prices[at] > 0:
            chosen[at] = program.variable(most, cost=-float(prices[at]))
            for name, amount in kind[0]:
                use.setdefault(name, []).append((chosen[at], amount / max(1, room.get(name, 0))))
    if not chosen:
        return 0.0, {}
    for terms in use.values():
        program.row(terms, most=1.0)
    found = solve(program)
    values = found.values if found.values is not None else np.zeros(program.size)
    pattern = {at: round(float(values[variable])) for at, variable in chosen.items()}
    return -found.bound, {at: count for at, count in pattern.items() if count}
