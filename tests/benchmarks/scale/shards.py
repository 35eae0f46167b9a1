"""Many shards beside one scheduler: whether they overcommit, and what is lost because a shard sees only its nodes.

Pods of many teams and sizes come until the first of them fits nowhere. One scheduler may use all nodes. Of several
shards, each has an equal part of the nodes, and each team's pods belong to one shard (`by team`), or each pod to the
shard with the fewest pods so far (`in turn`). A pod that its shard cannot place is lost: shards that pass pods on
(`sharding`) lose none of them, cells (`kubernetes.nodeSelector`) do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from tests.benchmarks.decisions import NOW
from tests.benchmarks.manifests import add_node, node, pod, pod_info

SHARDS = 16
_TEAMS = 400
_SIZES = ((250, 0.5), (500, 0.25), (1_000, 0.15), (2_000, 0.08), (3_500, 0.02))
"""Millicores of a pod, and the share of the pods; a node has 4,000."""
_NODE_MILLIS = 4_000
_ASKED = 0.97
"""Of the capacity: what all pods together request."""


@dataclass(frozen=True)
class Fragmentation:
    """What became of the same pods, with so many shards."""

    shards: int
    divided: str
    """How pods are divided among shards."""
    nodes: int
    pods: int
    placed: int
    lost: int
    """Pods that their shard had no room for."""
    first_lost_at: float
    """Share of the capacity that was requested when the first pod was lost; 1.0 if none was."""
    used: float
    """Share of the capacity that the placed pods request."""
    overcommitted: int
    """Nodes whose pods request more than they offer."""


def measure_shards(*, nodes: int = 1_600, seed: int = 1, say: Callable[[str], None]) -> Iterator[Fragmentation]:
    """Place the same pods by one scheduler and by shards."""
    pods = _pods(nodes, Random(seed))
    weights = [size for _, size in pods]
    teams = np.array([team for team, _ in pods])
    by_team = _by_team(teams, weights, SHARDS)
    for divided, shards, shard_of in (
        ("one scheduler", 1, [0] * len(pods)),
        ("in turn", SHARDS, [number % SHARDS for number in range(len(pods))]),
        ("by team, by its requests", SHARDS, by_team),
        ("by team, by hash", SHARDS, [(team * 2_654_435_761 >> 7) % SHARDS for team, _ in pods]),
    ):
        say(f"{shards} shards, {divided}")
        yield _placed(pods, shards, shard_of, nodes=nodes, divided=divided)


def _pods(nodes: int, random: Random) -> list[tuple[int, int]]:
    """Return the team and the millicores of each pod; large teams have many pods."""
    sizes, shares = [size for size, _ in _SIZES], [share for _, share in _SIZES]
    teams = [1.0 / (rank + 10) for rank in range(_TEAMS)]
    found: list[tuple[int, int]] = []
    left = _ASKED * nodes * _NODE_MILLIS
    while left > 0:
        size = random.choices(sizes, shares)[0]
        found.append((random.choices(range(_TEAMS), teams)[0], size))
        left -= size
    return found


def _by_team(teams: Sequence[int], weights: Sequence[int], shards: int) -> list[int]:
    """Return the shard of each pod: teams go, the largest first, to the shard with the least requests."""
    requests = np.bincount(teams, weights=weights)
    loads, of_team = [0.0] * shards, dict[int, int]()
    for team in np.argsort(-requests).tolist():
        of_team[team] = loads.index(min(loads))
        loads[of_team[team]] += requests[team]
    return [of_team[team] for team in teams]


def _placed(
    pods: Sequence[tuple[int, int]], shards: int, shard_of: Sequence[int], *, nodes: int, divided: str
) -> Fragmentation:
    clusters, cycle, profile = (
        [Cluster() for _ in range(shards)],
        [Cycle() for _ in range(shards)],
        kubernetes_profile(),
    )
    for number in range(nodes):
        add_node(clusters[number % shards], node(f"node-{number}"))
    capacity = float(nodes * _NODE_MILLIS)
    asked, used, lost, first = 0.0, 0.0, 0, 1.0
    for number, ((team, size), shard) in enumerate(zip(pods, shard_of, strict=True)):
        cluster = clusters[shard]
        info = pod_info(cluster, pod(f"pod-{number}", labels={"team": f"team-{team}"}, cpu=f"{size}m", memory="64Mi"))
        asked += size
        decision = cycle[shard].decide(Frame(info, cluster, NOW), profile, preempts=False)
        if decision.host is None:
            first = min(first, asked / capacity)
            lost += 1
        else:
            cluster.place(info, decision.host)
            used += size
    over = sum(int(np.count_nonzero(each.nodes.requested("cpu") > each.nodes.allocatable("cpu"))) for each in clusters)
    return Fragmentation(shards, divided, nodes, len(pods), len(pods) - lost, lost, first, used / capacity, over)
