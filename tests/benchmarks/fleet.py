"""`python -m tests.benchmarks.fleet`: bindings decided per second, over 500 clusters, and how that follows the number.

A decision maker knows all bindings and clusters. All bindings are decided, without writes; then each is changed by its
owner and decided again, and the status of a cluster changes in between. CPU time is measured. With a policy, the same.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, PlacementAlone, Question, Rules, Template
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.times import Steady
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC, raw_binding, raw_cluster

Json: TypeAlias = dict[str, Any]
CLUSTERS, SAMPLE = 500, 500
NOW = Steady(0.0)
SPREAD = {
    "spreadConstraints": [
        {"spreadByField": "region", "minGroups": 2, "maxGroups": 3},
        {"spreadByField": "cluster", "minGroups": 2, "maxGroups": 6},
    ]
}
GOLD = {"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "gold"}}}}
PLACEMENTS = (
    DYNAMIC,
    DYNAMIC | SPREAD,
    DYNAMIC | GOLD,
    DUPLICATED | {"clusterAffinity": {"clusterNames": ["c1", "c2"]}},
)
POLICY = """\
for workloads where true
score 1000 if cluster.provider == "own"
score -(cluster.price ?? 9)
divide best first
"""


def written_cluster(number: int, cpu: int = 400) -> Json:
    """Return one of the clusters, as the API server has it."""
    return raw_cluster(
        f"c{number}",
        cpu=cpu,
        region=f"r{number % 8}",
        provider=("own", "aws", "gcp")[number % 3],
        zones=["z1", "z2"][: 1 + number % 2],
        labels={"tier": ("gold", "silver")[number % 2]},
        annotations={"policy-scheduler/hourly-price": str(1 + number % 7)},
    )


def cluster(number: int, cpu: int = 400) -> KarmadaCluster:
    """Return one of the clusters."""
    return msgspec.convert(written_cluster(number, cpu), KarmadaCluster)


def written_binding(number: int, **given: Any) -> Json:
    """Return one of the bindings, as the API server has it: it is not placed yet."""
    placement = PLACEMENTS[number % len(PLACEMENTS)]
    return raw_binding(f"w{number}", replicas=3 + number % 40, placement=placement, **given)


def bindings(count: int) -> Iterator[ResourceBinding]:
    """Yield so many bindings that are not placed yet."""
    for number in range(count):
        yield msgspec.convert(written_binding(number), ResourceBinding)


def rules(text: str) -> Rules:
    """Return what decides: a policy, or the Placements alone."""
    if not text:
        return PlacementAlone()
    loaded = load([Source("bench.policy", text)])
    assert loaded.policy_set is not None, loaded.diagnostics
    return FleetRules(loaded.policy_set.fleet, clock=time.time)


def per_second(text: str, count: int) -> tuple[float, float]:
    """Return decisions per second of CPU time: of bindings alone, and with a cluster's status changing before each."""
    maker = DecisionMaker(["fleet"], rules=rules(text))
    maker.replace_clusters([cluster(number) for number in range(CLUSTERS)], NOW)
    maker.replace_bindings(list(bindings(count)), NOW, namespaced=True)
    gc.collect()
    gc.freeze()
    found = []
    for changes in (False, True):
        decided, began = 0, time.process_time()
        while decided < SAMPLE:
            work = maker.next(NOW)
            assert work is not None
            if isinstance(work, Question):
                maker.set_template(work.key, Template({}, {}), NOW)
                continue
            assert work.outcome is not None
            assert work.outcome.placed
            if changes:
                maker.set_cluster(cluster(decided % CLUSTERS, cpu=400 + decided), NOW)
            decided += 1
        found.append(SAMPLE / (time.process_time() - began))
    return found[0], found[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--bindings", type=int, nargs="*", default=[2_000, 10_000])
    options = parser.parse_args()
    print(f"{CLUSTERS} clusters; decisions per second of one core")
    for name, text in (("Placement", ""), ("policy", POLICY)):
        for count in options.bindings:
            alone, changing = per_second(text, count)
            print(f"{name:10} {count:>7,} bindings {alone:>8,.0f}   a status changes before each {changing:>8,.0f}")


if __name__ == "__main__":
    main()
