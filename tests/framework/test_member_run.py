"""The law of runs: members of a gang that are decided together get the nodes that each would get alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.compute.compiled_kernels import compile_kernels
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.decide.gang_domains import Domain, GangTopology
from kube_policy_scheduler.framework.decide.member_run import MemberRun
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod
from tests.framework.worlds import EVENTS, PODS, World, make_node, make_pod
from tests.simulation.chaos import policies_of

NOW = 2e9
ZONES = ("a", "b", "c")
GANG = Group("a rule", "default", "policy-scheduler", "a gang")
SCORES = "filter fits()\nuse kubernetes scores\n"
POLICIES = (
    "",
    SCORES,
    f"{SCORES}ties by name\n",
    f"{SCORES}score node.free.cpu / 3\nscore 1 / 3 if node.label.disk\n",
    "score 7 * count(p in node.pods)\nfilter count(p in node.pods) < 3\n",
    'score 3 if node.label.zone == "a"\nscore most_allocated() / 7\nties by name\n',
    f"{SCORES}score scale(node.free.cpu, 0, 7)\n",
    f"{SCORES}limit count() by pod.namespace to 4\n",
)


class Algorithm(ScheduleAlgorithm):
    """Decides by one profile, and counts how many members were decided without a look at all nodes."""

    def __init__(self, cluster: Cluster, profile: Profile, accelerator: Accelerator | None = None) -> None:
        super().__init__(cluster, Cycle(seed=7, accelerator=accelerator), lambda: NOW)
        self._profile = profile
        self.begun = 0

    def profile(self, pod: PodInfo) -> Profile | None:
        return self._profile

    def gang_requirements(self, queued: QueuedPod) -> tuple[GangRequirement, ...]:
        return ()

    def begin_run(self, frame: Frame, profile: Profile) -> MemberRun | None:
        self.begun += 1
        return super().begin_run(frame, profile)


def member(name: str, **short: Any) -> objects.Pod:
    return make_pod(name, {"cpu": "100m", **short, "schedulerName": "policy-scheduler", "deleting": False})


def profile_of(text: str) -> Profile:
    if not text:
        return kubernetes_profile()
    cluster = Cluster()
    found = policies_of(text).profile(cluster.templates.pod(member("p")))
    assert found is not None
    return found


PROFILES = tuple(map(profile_of, POLICIES))


def shown(decision: Decision) -> tuple[Any, ...]:
    return decision.host, decision.score, decision.feasible, decision.ties, decision.total, decision.devices


@given(st.data())
def test_members_get_the_nodes_that_each_would_get_alone(data: st.DataObject) -> None:
    """Whatever happens between them: other pods, placements that fail, nodes that change, another domain."""
    world = World()
    for event in data.draw(EVENTS):
        world.happen(event)
    cluster, profile = world.cluster, data.draw(st.sampled_from(PROFILES))
    accelerator = Accelerator(compile_kernels().kernels if data.draw(st.booleans()) else None)
    algorithm, alone = Algorithm(cluster, profile, accelerator), Cycle(seed=7)
    short = data.draw(st.sampled_from(PODS))
    domain: Domain | None = None
    steps = ["member"] * 8 + ["fails", "other", "gone", "node", "domain", "nominated"]
    for serial in range(data.draw(st.integers(2, 16))):
        step = data.draw(st.sampled_from(steps))
        match step:
            case "member" | "fails":
                pod = cluster.templates.pod(member(f"member-{serial}", **short))
                queued = QueuedPod(pod, queued=NOW, timestamp=NOW, attempts=1, groups=(GANG,))
                narrowed = profile if domain is None else profile.narrowed(GangTopology((domain,)))
                wanted = alone.decide(algorithm.frame(queued), narrowed, preempts=False)
                found = algorithm.decide(queued, preempts=False)
                assert shown(found) == shown(wanted)
                if found.host is not None and step == "member":
                    cluster.place(pod, found.host)
            case "other" if cluster.nodes.size:
                name = data.draw(st.sampled_from(sorted(cluster.nodes.rows)))
                other = make_pod(f"other-{serial}", {**data.draw(st.sampled_from(PODS)), "deleting": False})
                cluster.place(cluster.templates.pod(other), name)
            case "gone" if cluster.pods:
                cluster.displace(data.draw(st.sampled_from(sorted(cluster.pods))))
            case "node":
                world.happen(("node", data.draw(st.integers(0, 7)), data.draw(st.integers(0, 95))))
            case "domain":
                zone = data.draw(st.sampled_from([None, *ZONES]))
                domain = Domain("zone", zone) if zone is not None else None
                algorithm.gangs.settle(GANG, domain)
            case "nominated" if cluster.nodes.size:
                name = data.draw(st.sampled_from(["", *sorted(cluster.nodes.rows)]))
                cluster.nominate(cluster.templates.pod(make_pod("important", {"cpu": "2", "priority": 9})), name)


def gang(cluster: Cluster, number: int, **short: Any) -> list[QueuedPod]:
    pods = [cluster.templates.pod(member(f"m{each}", **short)) for each in range(number)]
    return [QueuedPod(pod, queued=NOW, timestamp=NOW, attempts=1, groups=(GANG,)) for pod in pods]


def cluster_of(number: int) -> Cluster:
    cluster = Cluster()
    for each in range(number):
        cluster.set_node(make_node(f"n{each}", {"labels": {"zone": ZONES[each % 3]}, "cpu": "4", "pods": "110"}))
    return cluster


def placed(algorithm: Algorithm, cluster: Cluster, members: list[QueuedPod]) -> Counter[str]:
    hosts = Counter[str]()
    for queued in members:
        decision = algorithm.decide(queued, preempts=False)
        if decision.host is not None:
            cluster.place(queued.pod, decision.host)
            hosts[decision.host] += 1
    return hosts


@pytest.mark.parametrize("domain", [None, Domain("zone", "b")])
def test_all_nodes_are_evaluated_once_for_a_gang(domain: Domain | None) -> None:
    cluster = cluster_of(30)
    algorithm = Algorithm(cluster, kubernetes_profile())
    algorithm.gangs.settle(GANG, domain)
    hosts = placed(algorithm, cluster, gang(cluster, 40))
    assert hosts.total() == 40
    assert algorithm.begun == 1
    if domain is not None:
        assert set(hosts) <= {f"n{each}" for each in range(1, 30, 3)}


def test_a_quota_that_the_members_fill_up_is_asked_for_each() -> None:
    cluster = cluster_of(3)
    profile = PROFILES[-1]
    assert placed(Algorithm(cluster, profile), cluster, gang(cluster, 6)).total() == 4


def test_members_with_another_template_begin_again() -> None:
    cluster = cluster_of(6)
    algorithm = Algorithm(cluster, kubernetes_profile())
    first, second = gang(cluster, 2), gang(cluster, 4, cpu="200m")[2:]
    assert placed(algorithm, cluster, [*first, *second]).total() == 4
    assert algorithm.begun == 2
