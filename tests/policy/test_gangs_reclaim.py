"""Whom a gang evicts by `reclaim` where it has a choice: only what is short at its places decides who may go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.reclaim import NotReclaimed, Reclaimed, next_victims, reclaim
from tests.lang.clusters import policy_set

NOW = 10_000.0
CLASS = "gpu.deviceclass.resource.k8s.io/devices"


class World:
    """Nodes with four cpu and four GPUs each, pods of the queues that their label names, and a gang that asks."""

    def __init__(self, text: str, *, nodes: int = 2) -> None:
        self.cluster, self.policies = Cluster(), policy_set(text)
        for number in range(nodes):
            offers = {"cpu": "4", "nvidia.com/gpu": "4", "memory": "64Gi", "pods": "110"}
            body = {"metadata": {"name": f"n{number}"}, "status": {"allocatable": offers}}
            self.cluster.set_node(msgspec.convert(body, objects.Node))

    def cordon(self, name: str) -> None:
        before = self.cluster.nodes.infos[self.cluster.nodes.rows[name]].node
        spec = msgspec.structs.replace(before.spec, unschedulable=True)
        self.cluster.set_node(msgspec.structs.replace(before, spec=spec))

    def pod(self, name: str, queue: str, *, priority: int = 0, claims: bool = False, **labels: Any) -> objects.Pod:
        requests = {key: str(labels.pop(key)) for key in ("cpu", "gpu") if key in labels}
        if "gpu" in requests:
            requests["nvidia.com/gpu"] = requests.pop("gpu")
        spec: dict[str, Any] = {"resourceClaims": [{"name": "c", "resourceClaimName": name}]} if claims else {}
        if claims:
            exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
            body = {
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            }
            self.cluster.set_object(msgspec.convert(body, objects.ResourceClaim))
        body = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"queue": queue, **labels}},
            "spec": {
                "schedulerName": "policy-scheduler",
                "priority": priority,
                "containers": [{"name": "c", "resources": {"requests": requests}}],
                **spec,
            },
        }
        return msgspec.convert(body, objects.Pod)

    def run(self, name: str, queue: str, where: str, *, started: float = 0.0, **more: Any) -> None:
        made = self.cluster.templates.pod(self.pod(name, queue, **more))
        self.cluster.place(msgspec.structs.replace(made, started=started), where)

    def reclaim(self, members: Sequence[objects.Pod], *on: str, without: Collection[str]) -> Reclaimed:
        """Return whom a gang evicts that fits once some pods are gone, whatever else is in its way.

        on: the node of each member, or that of all.
        """
        assert self.policies.queues is not None
        pods: list[PodInfo] = [self.cluster.templates.pod(each) for each in members]

        def places() -> dict[str, str] | None:
            if any(self.cluster.node_of(uid) for uid in without):
                return None
            return {pod.uid: node for pod, node in zip(pods, on * (len(pods) // len(on)), strict=True)}

        return reclaim(Frame(pods[0], self.cluster, NOW), self.policies.queues, pods, places)

    def first(self) -> list[list[str]]:
        """Return who goes first if other queues want what is guaranteed to them, unit by unit."""
        assert self.policies.queues is not None
        found = next_victims(self.cluster, self.policies.queues, now=NOW, most=9)
        return [[pod.name for pod in unit.pods] for unit in found]


def names(found: Reclaimed) -> list[str]:
    return sorted(victim.name for victim in found.victims)


LENDS = """
queue a for pods where pod.label.queue == "a" min nvidia.com/gpu 2, cpu 4
queue b for pods where pod.label.queue == "b"
reclaim
"""
"""Nothing is guaranteed to b."""
BOTH = LENDS.replace('== "b"', '== "b" min cpu 1').replace("reclaim", "reclaim fair")
CLAIMS = f"""
queue a for pods where pod.label.queue == "a" min {CLASS} 2
queue b for pods where pod.label.queue == "b"
reclaim
"""


def test_who_holds_nothing_that_is_short_at_the_places_stays() -> None:
    """As where it has a host port that a member needs: that is no reason to evict a pod of another queue."""
    world = World(LENDS)
    for number in range(4):
        world.run(f"gpu{number}", "b", "n0", gpu=1)
        world.run(f"far{number}", "b", "n1", gpu=1)
    world.run("port", "b", "n0", cpu=0.5)
    gang = [world.pod(f"m{number}", "a", cpu=1, gpu=1) for number in range(2)]
    found = world.reclaim(gang, "n0", without=["gpu0", "gpu1", "port"])
    assert (found.why, names(found)) == (NotReclaimed.NO_VICTIMS, [])
    assert names(world.reclaim(gang, "n0", without=["gpu0", "gpu1"])) == ["gpu0", "gpu1"]


def test_what_is_guaranteed_by_a_weaker_resource_goes_only_where_the_stronger_one_is_short() -> None:
    """The gang is guaranteed GPUs, but at its places it is short of cpu alone, which is guaranteed to b."""
    world = World(BOTH)
    world.run("guaranteed", "b", "n0", cpu=1, gpu=1)
    world.run("borrows", "b", "n1", cpu=2)
    world.run("own", "", "n0", cpu=3)
    world.run("elsewhere", "", "n1", gpu=4)
    gang = [world.pod(f"m{number}", "a", cpu=0.5, gpu=1) for number in range(2)]
    found = world.reclaim(gang, "n0", without=["guaranteed"])
    assert (found.why, names(found)) == (NotReclaimed.NO_VICTIMS, [])
    world.run("more", "", "n0", gpu=3)
    assert names(world.reclaim(gang, "n0", without=["guaranteed"])) == ["guaranteed"], "now GPUs are short, too"


def test_a_gang_is_short_of_nothing_that_a_nominated_pod_loses_to_one_of_its_members() -> None:
    """The members differ, two like `large` would borrow, and all of them are guaranteed what they need as a whole."""
    world = World(BOTH.replace("gpu 2", "gpu 3") + 'queue c for pods where pod.label.queue == "c"\n')
    world.run("guaranteed", "b", "n0", cpu=1, gpu=1)
    world.run("own", "", "n0", cpu=3)
    nominated = world.cluster.templates.pod(world.pod("nominated", "c", priority=3, gpu=2))
    world.cluster.nominate(nominated, "n0")
    large, small = world.pod("large", "a", cpu=0.5, gpu=2), world.pod("small", "a", cpu=0.5, gpu=1, priority=10)
    for gang in ([large, small], [small, large]):
        found = world.reclaim(gang, "n0", without=["guaranteed"])
        assert (found.why, names(found)) == (NotReclaimed.NO_VICTIMS, []), "short of cpu alone"
    found = world.reclaim([large, small], "n0", "n1", without=["guaranteed"])
    assert (found.why, names(found)) == (NotReclaimed.NO_VICTIMS, []), "also where `large` is alone"


def test_who_holds_claimed_devices_goes_for_a_gang_that_is_short_of_them() -> None:
    """No column says which devices are free, so claimed ones count as short, whatever the places are."""
    world = World(CLAIMS)
    for number in range(3):
        world.run(f"job{number}", "b", "n0", claims=True)
    gang = [world.pod(f"m{number}", "a", cpu=1, claims=True) for number in range(2)]
    assert names(world.reclaim(gang, "n0", without=["job1", "job2"])) == ["job1", "job2"]


FAIR = """
queue a for pods where pod.label.queue == "a" max cpu 100
queue b for pods where pod.label.queue == "b"
gang by pod.label.job size 2 with 2 of role=worker if pod label job
reclaim fair rest 10min
"""


@pytest.mark.parametrize(
    ("age", "priority", "goes"),
    [(1e4, 0, True), (601.0, 0, True), (60.0, 0, False), (1e4, 2, False)],
    ids=["as old as the others", "11 min old", "1 min old", "of a higher priority than the pod"],
)
def test_a_gang_goes_for_a_fairer_share_only_if_each_member_beyond_its_size_may(
    age: float, priority: int, *, goes: bool
) -> None:
    """Roles may have it that the member with the highest priority is the one that the gang can do without."""
    world = World(FAIR)
    world.cordon("n1")
    for number in range(2):
        world.run(f"core{number}", "b", "n0", cpu=1, job="elastic", role="worker")
        world.run(f"other{number}", "b", "n1", cpu=2)
    world.run("surplus", "b", "n0", cpu=1, job="elastic", priority=priority, started=NOW - age)
    world.run("outside", "", "n0", cpu=1)
    pod = world.cluster.templates.pod(world.pod("asks", "a", cpu=3, priority=1))
    profile = world.policies.profile_of(pod)
    assert profile is not None
    found = Cycle().decide(Frame(pod, world.cluster, NOW), profile).reclaim
    assert found is not None
    assert names(found) == (["core0", "core1", "surplus"] if goes else [])


COMMON = """
queue a for pods where pod.label.queue == "a1" or pod.label.queue == "a2" min cpu 1
queue a1 of a for pods where pod.label.queue == "a1"
queue a2 of a for pods where pod.label.queue == "a2"
queue other for pods where pod.label.queue == "other" max nvidia.com/gpu 9
gang by pod.label.job size 2 if pod label job
reclaim fair
"""


def test_who_is_guaranteed_in_a_queue_in_common_goes_if_who_would_take_its_place_goes_too() -> None:
    """Of those in a2, one has the cpu that a guarantees; the next one would get it, and then the gang would not."""
    world = World(COMMON)
    world.cordon("n1")
    world.run("first", "a2", "n0", cpu=1, gpu=2)
    world.run("second", "a2", "n0", cpu=1, gpu=2, started=1.0)
    world.run("large", "a2", "n1", cpu=2, gpu=4, started=2.0)
    gang = [world.pod(f"m{number}", "a1", cpu=0.5, gpu=2) for number in range(2)]
    assert names(world.reclaim(gang, "n0", without=["first", "second"])) == ["first", "second"]


def test_an_elastic_gang_goes_as_a_whole_though_another_pod_would_take_the_place_of_a_part_of_it() -> None:
    world = World(COMMON.replace("min cpu 1", "min cpu 2"))
    world.cordon("n1")
    for number in range(2):
        world.run(f"core{number}", "a2", "n0", cpu=0.5, gpu=1, job="elastic")
    world.run("surplus", "a2", "n0", cpu=1, gpu=2, job="elastic", started=1.0)
    world.run("waits", "a2", "n1", cpu=1, gpu=4, started=2.0)
    gang = [world.pod(f"m{number}", "a1", cpu=0.5, gpu=2) for number in range(2)]
    assert names(world.reclaim(gang, "n0", without=["core0", "surplus"])) == ["core0", "core1", "surplus"]


@pytest.mark.parametrize("cordoned", [("n1", "n2"), ()], ids=["cordoned", "left out by something else"])
def test_pods_stay_on_nodes_that_are_of_no_use_though_those_of_a_node_that_looks_alike_must_go(
    cordoned: Sequence[str],
) -> None:
    world = World(LENDS, nodes=4)
    for name in cordoned:
        world.cordon(name)
    for number in range(4):
        world.run(f"gpus{number}", "b", f"n{number}", gpu=4, started=float(number))
    gang = [world.pod(f"m{number}", "a", gpu=1) for number in range(2)]
    assert names(world.reclaim(gang, "n0", without=["gpus0", *(["gpus3"] if cordoned else [])])) == (
        ["gpus0", "gpus3"] if cordoned else ["gpus0"]
    )


DRIVERS = LENDS + "gang by pod.label.job size 2 with 2 of role=driver if pod label job\n"


def test_of_a_gang_members_beyond_its_size_go_first_even_if_others_are_less_important() -> None:
    """As its roles may have it; and the list of who goes first leaves none of it out."""
    world = World(DRIVERS, nodes=1)
    for number, (role, priority) in enumerate([("driver", 0), ("driver", 0), ("worker", 5)]):
        world.run(f"{role}{number}", "b", "n0", cpu=1, job="j", role=role, priority=priority)
    world.run("important", "b", "n0", cpu=1, priority=9)
    assert world.first() == [["worker2"], ["driver0", "driver1"], ["important"]]
    gang = [world.pod(f"m{number}", "a", cpu=1) for number in range(2)]
    assert names(world.reclaim(gang, "n0", without=["worker2"])) == ["worker2"]
    assert names(world.reclaim(gang, "n0", without=["driver0"])) == ["driver0", "driver1", "worker2"]


@pytest.mark.parametrize("other", ["c", "none"], ids=["guaranteed to it in its other queue", "of no queue"])
def test_no_gang_is_said_to_go_that_reclaim_leaves_where_it_is(other: str) -> None:
    guarantees = 'queue c for pods where pod.label.queue == "c" min cpu 1\n'
    world = World(guarantees + LENDS + "gang by pod.label.job size 2 if pod label job\n", nodes=1)
    for number, queue in enumerate(["b", other]):
        world.run(f"job{number}", queue, "n0", cpu=1, job="j")
    world.run("alone", "b", "n0", cpu=2)
    assert world.first() == [["alone"]]
    gang = [world.pod(f"m{number}", "a", cpu=1) for number in range(2)]
    assert names(world.reclaim(gang, "n0", without=["job0"])) == []
