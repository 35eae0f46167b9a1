"""`python -m tests.tooling.random_moves --clusters 10000`: random clusters on which no move is ever undone.

Each cluster is planned pass after pass until nothing moves any more. The scheduler itself decides each replacement,
while the old pod terminates or after it is gone. A failure is replayed with `--seed`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.policy.answer import answer
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state
from kube_policy_scheduler.tooling.rebalancing.moves import Move, MoveBudgets
from kube_policy_scheduler.tooling.rebalancing.plan import RebalanceOptions, plan
from kube_policy_scheduler.tooling.rulesets import Ruleset
from tests.tooling.worlds import ruleset, things_of

POLICIES = (
    "filter fits()\nscore least_allocated(cpu)\n",
    "filter fits()\nscore most_allocated(cpu)\n",
    "filter fits()\nties by name\nscore least_allocated(cpu)\n",
    "filter fits()\nscore 100 * (1 - node.used_fraction.cpu)\n",
    "filter fits()\nspread by pod.label.app\n",
    "filter fits()\nspread by pod.label.app over zone weight 2\nscore most_allocated(cpu)\n",
    "filter fits()\nspread by pod.label.app over zone max skew 1\n",
    "filter fits()\npack by pod.label.app over zone\nscore least_allocated(cpu)\n",
    "filter fits()\nscore 30 if label disk=ssd\nscore least_allocated(cpu)\n",
    'filter fits() and (label disk=ssd or pod.label.app != "a")\nscore most_allocated(cpu)\n',
    "filter fits()\nlimit count() by pod.label.app to 2 over zone\nscore 100 * node.used_fraction.cpu\n",
    "use kubernetes scores\n",
)
RULES: list[Ruleset] = [ruleset("a", text) for text in POLICIES]
MOST_PASSES = 100
NOW = 1000.0
PROGRESS_EVERY = 500


class Undone(AssertionError):
    """A move was undone, went elsewhere, or the passes do not end."""


@dataclass
class _Run:
    seed: int
    random: Random
    there: ClusterState
    rules: Ruleset
    moves: int = 0

    def fail(self, why: str) -> None:
        raise Undone(f"seed {self.seed}: {why}\nreplay: python -m tests.tooling.random_moves --seed {self.seed}")

    def seat_pending(self) -> None:
        """Let the scheduler place the pending pods that fit; it does so before any pod moves."""
        for pod in self.there.pending():
            rules = self.rules.rules(pod)
            assert rules is not None
            if pod.uid not in self.there.cluster.pods:
                host = answer(DecisionInputs(pod, self.there.cluster, rules, now=NOW)).host
                if host is not None:
                    self.there.cluster.place(pod, host)
                    self.there.pods[pod.key].spec.node_name = host

    def land(self, move: Move, pod: PodInfo, *, reserved: bool) -> PodInfo:
        """Evict a pod, let the scheduler decide its replacement, and return that."""
        cluster, self.moves = self.there.cluster, self.moves + 1
        name = f"{pod.name.partition('.')[0]}.{self.moves}"
        waiting = msgspec.structs.replace(
            pod, uid=name, name=name, node_name="", nominated_node=move.target if reserved else "",
            demand=pod.template.demand,
        )  # fmt: skip
        first = self.random.random() < 0.5
        if first:
            cluster.displace(pod.uid)
        else:
            cluster.place(msgspec.structs.replace(pod, terminating=True), cluster.node_of(pod.uid) or "")
        rules = self.rules.rules(waiting)
        assert rules is not None
        host = answer(DecisionInputs(waiting, cluster, rules, now=NOW, seed=self.random.randrange(99))).host
        if not first:
            cluster.displace(pod.uid)
        if host is None:
            self.fail(f"the replacement of {move.pod} has no node")
        elif host != move.target and (reserved or move.equally_good == 1):
            self.fail(f"the replacement of {move.pod} is on {host}, not on {move.target}")
        assert host is not None
        cluster.place(waiting, host)
        return waiting


def check(seed: int) -> int:
    """Return how many moves were made on one random cluster.

    Raises:
        Undone: the law does not hold.
    """
    random = Random(seed)
    nodes, pods = _cluster(random)
    run = _Run(seed, random, cluster_state(things_of(nodes, pods)), random.choice(RULES))
    reserved = random.random() < 0.5
    budgets = MoveBudgets(100, 100, 100, 100) if reserved else MoveBudgets(1, 100, 100, 100)
    margin = random.choice((None, 0.0, 0.5, 5.0, 20.0))
    options = RebalanceOptions(run.rules, margin, NOW, budgets=budgets, reserves=reserved, seed=random.randrange(9))
    were: dict[str, list[str]] = {}
    left: dict[str, frozenset[str]] = {}
    cluster = run.there.cluster
    for _ in range(MOST_PASSES):
        run.seat_pending()
        found = plan(run.there, replace(options, left=left if reserved else {}))
        if not found.moves:
            return run.moves
        for move in found.moves:
            pod = cluster.pods[move.uid]
            workload = pod.name.partition(".")[0]
            made = run.land(move, pod, reserved=reserved)
            host = cluster.node_of(made.uid) or ""
            before = were.setdefault(workload, [move.source])
            if host in before:
                run.fail(f"{workload} is back on {host}: {before}")
            before.append(host)
            left[move.workload] = left.get(move.workload, frozenset()) | {move.source}
    run.fail(f"{run.moves} moves, and no end")
    return 0


def _cluster(random: Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return nodes, and pods that are anywhere they fit, by whatever once put them there."""
    nodes = [
        {
            "name": f"n{at}",
            "cpu": random.randint(2, 8),
            "mem": "64Gi",
            "labels": {
                "disk": random.choice(("ssd", "hdd")),
                "topology.kubernetes.io/zone": random.choice("xyz"),
                "kubernetes.io/hostname": f"n{at}",
            },
        }
        for at in range(random.randint(2, 7))
    ]
    free = [node["cpu"] * 1000 for node in nodes]
    pods: list[dict[str, Any]] = []
    for at in range(random.randint(0, 14)):
        where, millis = random.randrange(len(nodes)), random.choice((250, 500, 1000, 1500, 3000))
        if free[where] >= millis:
            free[where] -= millis
            app = random.choice("abc")
            pods.append(
                {
                    "name": f"p{at}", "cpu": f"{millis}m", "node": f"n{where}", "labels": {"app": app},
                    "owner": f"ReplicaSet/{app}{at}",
                }
            )  # fmt: skip
    if random.random() < 0.3:
        pods.append(
            {"name": "waits", "cpu": random.choice((1, 4)), "owner": "ReplicaSet/waits", "labels": {"app": "a"}}
        )
    return nodes, pods


def _checked(seed: int) -> tuple[int, str]:
    try:
        return check(seed), ""
    except Undone as error:
        return 0, str(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 1 where anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.tooling.random_moves", description=__doc__)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first cluster")
    parser.add_argument("--seed", type=int, help="only this cluster")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    given = parser.parse_args(arguments)
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.clusters)
    began, moves, failed = time.monotonic(), 0, 0
    with ProcessPoolExecutor(given.workers) as pool:
        for number, (made, problem) in enumerate(pool.map(_checked, seeds, chunksize=20), 1):
            moves += made
            if problem:
                failed += 1
                print(problem, flush=True)
            if number % PROGRESS_EVERY == 0 or number == len(seeds):
                seconds = time.monotonic() - began
                print(f"{number} clusters, {moves:,} moves in {seconds:.0f} s: {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
