"""PodDisruptionBudgets in virtual time: evictions count down what they allow, ready replacements count it up."""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.tooling.simulation.node_events import NodeAction, NodeEvent, NodeEvents
from kube_policy_scheduler.tooling.simulation.run import run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.tooling.simulation.scenarios import node, pod


def budget(allowed: int) -> objects.PodDisruptionBudget:
    body = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(body, objects.PodDisruptionBudget)


def web(**spec: object) -> objects.Pod:
    made = pod(cpu="3", **spec)
    made.metadata.labels = {"app": "web"}
    return made


HIGH = {"cpu": "3", "priority": 10}
FULL = [
    Arrival(0, "web-0", web(), 10_000),
    Arrival(0, "web-1", web(), 10_000),
    Arrival(0, "batch", pod(cpu="3", priority=5, preemptionPolicy="Never"), 10_000),
]


def running(
    arrivals: list[Arrival], allowed: int, *events: NodeEvent
) -> tuple[dict[float, set[str]], dict[float, int]]:
    """Return by the time who runs, and what the budget allows."""
    names: dict[float, set[str]] = {}
    left: dict[float, int] = {}

    def watch(at: float, cluster: Cluster) -> None:
        names[at] = {each.name for each in cluster.pods.values()}
        (found,) = cluster.all(objects.PodDisruptionBudget)
        left[at] = found.status.disruptions_allowed

    things = [*(node(name) for name in "abc"), budget(allowed)]
    scenario = Scenario(things, arrivals, node_events=NodeEvents(events), stops_after=9000)
    run(scenario, PolicyVariant("kubernetes"), seed=0, stopwatch=lambda: 0.0, watch=watch)
    return names, left


def test_an_eviction_is_taken_from_the_budget_and_a_ready_replacement_returns_it() -> None:
    high = [Arrival(10, "high-1", pod(**HIGH), 100), Arrival(20, "high-2", pod(**HIGH), 1000)]
    names, left = running([*FULL, *high], 1)

    assert len(names[10] & {"web-0", "web-1"}) == 1, "the budget allows it, and their priority is lower"
    assert (left[0], left[10]) == (1, 0)
    assert len(names[20] & {"web-0", "web-1"}) == 1, "no more disruptions: a pod of higher priority goes"
    assert "batch" not in names[20]
    assert "batch~" in names[110], "it gets the node that is free then"
    assert left[110] == 0
    assert names[1020] & {"web-0~", "web-1~"}
    assert left[1020] == 1


def test_pods_of_a_node_that_is_removed_are_missing_too() -> None:
    owned = web()
    owned.metadata.owner_references = [objects.OwnerReference(kind="ReplicaSet", name="web", uid="r", controller=True)]
    arrivals = [Arrival(0, f"web-{number}", owned, 10_000) for number in range(3)]
    _, left = running(arrivals, 2, NodeEvent(50, NodeAction.REMOVE, "a"))
    assert (left[0], left[50]) == (2, 1)
