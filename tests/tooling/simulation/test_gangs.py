"""Gangs in virtual time: by the same code as in the daemon they wait, start together, and give their places back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.tooling.simulation.node_events import parse_node_events
from kube_policy_scheduler.tooling.simulation.run import GANG_INCOMPLETE, GANG_TOO_SMALL, Run, run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.tooling.simulation.scenarios import node, pod, simulated, variant

GANG = "gang by pod.label.job size number(pod.label.size) within 60s if pod.label.job\n"


def member(job: str, size: int, *, cpu: str = "1", labels: dict[str, str] | None = None, **spec: Any) -> objects.Pod:
    made = pod(cpu=cpu, **spec)
    made.metadata.labels = {"job": job, "size": str(size), **(labels or {})}
    return made


def in_group(name: str, *, cpu: str = "1") -> objects.Pod:
    return pod(cpu=cpu, schedulingGroup={"podGroupName": name})


def pod_group(name: str, size: int) -> objects.PodGroup:
    spec = {"schedulingPolicy": {"gang": {"minCount": size}}}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, objects.PodGroup)


def gang(
    job: str, size: int, *, at: float = 0, lasts: float | None = 100, number: int = 0, **pods: Any
) -> list[Arrival]:
    made = member(job, size, **pods)
    return [Arrival(at, f"{job}-{each}", made, lasts) for each in range(number or size)]


def test_members_wait_for_those_that_come_later_and_start_together() -> None:
    first, second = gang("a", 2)
    later = Arrival(40, second.name, second.pod, 100)
    found = simulated([first, later], nodes=[node("n")], by=GANG)
    assert (found.placed, found.left, sorted(found.wait_seconds)) == (2, 2, [0, 40])
    assert found.samples[-1].at == 140


def test_a_gang_that_does_not_fit_never_starts_in_part() -> None:
    found = simulated(gang("a", 5), nodes=[node("n")], by=GANG)
    assert (found.placed, found.unplaced, dict(found.reasons)) == (0, 5, {GANG_INCOMPLETE: 5})
    assert found.given_back == 0
    assert all(sample.running == 0 for sample in found.samples)


def test_a_gang_with_too_few_pods_holds_nothing() -> None:
    small = Arrival(1, "small", pod(cpu="4"), 10)
    found = simulated([*gang("a", 3, number=2), small], nodes=[node("n")], by=GANG)
    assert (found.placed, found.wait_seconds, dict(found.reasons)) == (1, (0,), {GANG_TOO_SMALL: 2})
    assert found.given_back == 0


def test_a_gang_that_does_not_fit_leaves_the_room_to_others() -> None:
    holder = gang("a", 4, lasts=None)
    blocker = Arrival(0, "blocker", pod(cpu="1"), 1000)
    small = Arrival(10, "small", pod(cpu="2"), 50)
    found = simulated([blocker, *holder, small], nodes=[node("n")], by=GANG)
    waits = dict(zip(("blocker", "small"), found.wait_seconds, strict=False))
    assert waits["blocker"] == 0
    assert waits["small"] == 0, "the gang holds none of the three cores"
    assert found.placed == 6, "the gang starts once the blocker has left"
    assert found.unplaced == 0


def test_a_gang_starts_as_soon_as_there_is_room_for_all_of_it() -> None:
    blocker = Arrival(0, "blocker", pod(cpu="1"), 150)
    found = simulated([blocker, *gang("a", 4)], nodes=[node("n")], by=GANG)
    assert found.placed == 5
    assert max(found.wait_seconds) == 150


def test_two_gangs_that_need_each_others_nodes_both_run_in_the_end() -> None:
    arrivals = [each for pair in zip(gang("a", 3), gang("b", 3), strict=True) for each in pair]
    found = simulated(arrivals, nodes=[node("n", cpu="4")], by=GANG)
    assert (found.placed, found.left, found.unplaced) == (6, 6, 0)
    assert sorted(found.wait_seconds)[:3] == [0, 0, 0]


def test_a_gang_with_roles_starts_with_its_driver_only() -> None:
    roles = "gang by pod.label.job size 3 with 1 of role=driver, 2 of role=worker within 60s\n"
    workers = gang("a", 3, number=3, labels={"role": "worker"})
    driver = Arrival(30, "driver", member("a", 3, labels={"role": "driver"}), 100)
    found = simulated([*workers, driver], nodes=[node("n")], by=roles)
    assert found.placed == 4
    assert set(found.wait_seconds) == {0, 30}


def test_an_important_gang_evicts_others_only_if_it_is_complete_then() -> None:
    low = [Arrival(0, f"low-{number}", pod(cpu="2"), 500) for number in range(2)]
    for size, evicted in ((2, 2), (3, 0)):
        arrivals = [*low, *gang("high", size, at=10, cpu="2", priority=10)]
        found = simulated(arrivals, nodes=[node("n")], by=GANG)
        assert found.evicted == evicted, size
        assert found.placed == (6 if size == 2 else 2)


@pytest.mark.parametrize("by", [None, "filter fits(cpu)"])
def test_groups_of_the_api_wait_with_and_without_policies(by: str | None) -> None:
    who = variant(by) if by is not None else PolicyVariant("kubernetes")
    made = in_group("train")
    arrivals = [Arrival(at, f"p{at}", made, 100) for at in (0, 20)]

    def found(*groups: objects.PodGroup) -> Run:
        return run(Scenario([node("n"), *groups], arrivals), who, seed=0, stopwatch=lambda: 0.0)

    assert sorted(found(pod_group("train", 2)).wait_seconds) == [0, 20]
    assert found(pod_group("train", 1)).wait_seconds == (0, 0)
    assert found(pod_group("train", 3)).unplaced == 2
    assert found().unplaced == 2, "a group that is not there"


def test_hopeless_gangs_do_not_keep_the_simulation_busy() -> None:
    def decisions(number: int) -> int:
        arrivals = [each for job in range(number) for each in gang(f"j{job}", 9)]
        return simulated(arrivals, nodes=[node("n")], by=GANG).decisions

    assert decisions(16) < 16 * 4 * decisions(1)


def test_the_same_seed_gives_the_same_run() -> None:
    arrivals = [each for job in range(9) for each in gang(f"j{job}", 1 + job % 4, at=10.0 * job, lasts=30 + 7 * job)]
    nodes = [node(f"n{number}", cpu="2") for number in range(3)]
    first, again = (simulated(arrivals, nodes=nodes, by=GANG, seed=1) for _ in range(2))
    assert first == again
    assert first.unplaced == 0


def test_the_rest_of_a_gang_whose_node_is_lost_is_evicted_after_a_while_and_starts_again_as_a_whole() -> None:
    removed = {"events": [{"at": "20s", "remove": "b"}, {"at": "200s", "add": {"name": "c", "cpu": 4, "mem": "8Gi"}}]}
    events = parse_node_events(Source("events.yaml", yaml.safe_dump(removed)), nodes=["a", "b"])
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    members = gang("a", 8, lasts=1000)
    for each in members:
        each.pod.metadata.owner_references = [msgspec.convert(owner, objects.OwnerReference)]
    scenario = Scenario([node("a"), node("b")], members, node_events=events)
    found = run(scenario, variant(GANG), seed=0, stopwatch=lambda: 0.0)
    assert (found.evicted, found.restarted, found.placed) == (4, 4, 16)
    assert {sample.running for sample in found.samples if 20 < sample.at < 80} == {4}
    assert {sample.running for sample in found.samples if 81 < sample.at < 200} == {0}
    assert found.samples[-1].at == 1200
