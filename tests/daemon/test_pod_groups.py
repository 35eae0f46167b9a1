"""PodGroups of the API: their pods start together or not at all, and wait for a group that is not there yet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster.objects import CoschedulingPodGroup, PodCondition, PodGroup, PodGroupStatus
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules, KubernetesVersion
from tests.simulation.calm import Calm, story
from tests.simulation.chaos import containers

LABEL = "scheduling.x-k8s.io/pod-group"


def native(name: str, **spec: Any) -> PodGroup:
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, PodGroup)


def gang(name: str, size: int) -> PodGroup:
    return native(name, schedulingPolicy={"gang": {"minCount": size}})


def coscheduling(name: str, size: int) -> CoschedulingPodGroup:
    spec = {"minMember": size, "scheduleTimeoutSeconds": 30}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, CoschedulingPodGroup)


def exists(calm: Calm, group: PodGroup | CoschedulingPodGroup) -> None:
    calm.process.scheduler.event_handlers.object_changed(group)


def pods(calm: Calm, group: str, *names: str) -> None:
    for name in names:
        calm.server.create_pod(name, {"schedulingGroup": {"podGroupName": group}} | containers(1000), {})


def labelled(calm: Calm, group: str, *names: str) -> None:
    for name in names:
        calm.server.create_pod(name, containers(1000), {LABEL: group})


def test_pods_of_a_group_wait_until_enough_of_them_fit() -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, gang("train", 3))
        pods(calm, "train", "a", "b")
        await calm.after(10)
        assert (calm.on_nodes(), calm.waiting()) == ([], [])
        assert calm.told.why["a"] == (
            "waiting for minCount pods from a gang to appear in scheduling queue:"
            ' gang "default/train" starts with 3 pods (PodGroup train)'
        )
        pods(calm, "train", "c")
        await calm.after(10)
        assert (calm.on_nodes(), calm.waiting()) == ([], [])
        calm.server.set_node("n1", cpu=1, labels={})
        await calm.after(20)
        assert calm.on_nodes() == ["a", "b", "c"]

    story("", tell, cpus=(2,))


def test_pods_wait_for_a_group_that_comes_after_them() -> None:
    async def tell(calm: Calm) -> None:
        pods(calm, "train", "a", "b")
        await calm.after(10)
        assert calm.on_nodes() == []
        assert calm.told.why["a"] == 'waiting for pods\'s pod group "train" to appear in scheduling queue'
        exists(calm, gang("train", 2))
        await calm.after(1)
        assert calm.on_nodes() == ["a", "b"]

    story("", tell, cpus=(2,))


def test_a_group_with_the_basic_policy_requires_nothing() -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, native("plain", schedulingPolicy={"basic": {}}))
        pods(calm, "plain", "a", "b", "c")
        await calm.after(5)
        assert len(calm.on_nodes()) == 2

    story("", tell, cpus=(2,))


def test_a_group_that_does_not_fit_holds_nothing_while_a_single_pod_waits() -> None:
    """kube-scheduler binds the single pod after 0.3 s: it plans the group on a snapshot, and assumes nothing of it."""

    async def tell(calm: Calm) -> None:
        exists(calm, gang("train", 3))
        pods(calm, "train", "a", "b", "c")
        await calm.after(5)
        assert calm.waiting() == []
        calm.pod("single")
        await calm.after(0.3)
        assert calm.on_nodes() == ["single"]

    story("", tell, cpus=(2,))


RACK = {"topology": [{"key": "topology.kubernetes.io/rack"}]}
GANG_OF_2 = {"schedulingPolicy": {"gang": {"minCount": 2}}}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (GANG_OF_2 | {"schedulingConstraints": RACK}, "no node has the label topology.kubernetes.io/rack"),
        (GANG_OF_2 | {"schedulingConstraints": {"topology": [*RACK["topology"], {"key": "zone"}]}}, "it knows one"),
        (GANG_OF_2 | {"schedulingConstraints": {"topology": [{"key": "rack", "mode": "near"}]}}, "it knows one"),
        (GANG_OF_2 | {"schedulingConstraints": {"power": {"max": "4"}}}, "does not know: power"),
        (GANG_OF_2 | {"resourceClaims": [{"name": "net"}]}, "shares resource claims among its pods (net)"),
        (GANG_OF_2 | {"parentCompositePodGroupName": "tree"}, "waiting for CompositePodGroup default/tree"),
        ({"schedulingPolicy": {"elastic": {}}}, "a scheduling policy other than `basic` and `gang`"),
        ({}, "a scheduling policy other than `basic` and `gang`"),
        (
            GANG_OF_2 | {"preemptionPolicy": "Never"},
            "has a preemptionPolicy, which needs the feature gate PodGroupPreemptionPolicy",
        ),
    ],
    ids=[
        "topology",
        "two",
        "unknown mode",
        "constraint",
        "claims",
        "parent",
        "policy",
        "no policy",
        "preemption policy",
    ],
)
def test_what_a_group_asks_for_and_is_not_done_holds_its_pods_with_the_reason(spec: dict[str, Any], why: str) -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, native("near", **spec))
        pods(calm, "near", "a", "b")
        await calm.after(10)
        assert calm.on_nodes() == []
        assert why in calm.told.why["a"]
        exists(calm, native("near", **GANG_OF_2))
        await calm.after(10)
        assert calm.on_nodes() == ["a", "b"], "once the group asks for it no longer"

    story("", tell, cpus=(2,))


def racks(calm: Calm, **racks: str) -> None:
    for name, rack in racks.items():
        calm.server.set_node(name, cpu=2, labels={"topology.kubernetes.io/rack": rack})


def nodes_of(calm: Calm) -> dict[str, str]:
    found = {name: pod["spec"].get("nodeName", "") for name, pod in calm.server.pods.items()}
    return {name: node for name, node in found.items() if node}


def test_a_group_with_a_topology_starts_whole_in_one_domain() -> None:
    async def tell(calm: Calm) -> None:
        racks(calm, a0="a", b0="b", b1="b")
        near = native("near", schedulingPolicy={"gang": {"minCount": 3}}, schedulingConstraints=RACK)
        exists(calm, near)
        pods(calm, "near", "p", "q", "r")
        await calm.after(10)
        assert set(nodes_of(calm).values()) == {"b0", "b1"}
        calm.restart()
        exists(calm, near)
        pods(calm, "near", "s", "t")
        await calm.after(10)
        later = {name for name in nodes_of(calm) if name in ("s", "t")}
        assert len(later) == 1, "the members that run fix the domain, also after a restart"
        assert set(nodes_of(calm).values()) == {"b0", "b1"}
        (left,) = {"s", "t"} - later
        assert "outside topology.kubernetes.io/rack=b" in calm.told.why[left]

    story("", tell, cpus=())


@pytest.mark.parametrize("is_on", [True, False])
def test_with_the_gate_a_group_gets_the_domain_that_kube_scheduler_selects(is_on: bool) -> None:
    """Both domains are full with the pods that fit; `a` holds the two that are needed, `b` all four."""

    async def tell(calm: Calm) -> None:
        racks(calm, a0="a", b0="b", b1="b")
        exists(calm, native("near", schedulingPolicy={"gang": {"minCount": 2}}, schedulingConstraints=RACK))
        pods(calm, "near", *"pqrs")
        await calm.after(10)
        assert set(nodes_of(calm).values()) == ({"b0", "b1"} if is_on else {"a0"})
        assert len(calm.on_nodes()) == (4 if is_on else 2)

    gate = Feature.TOPOLOGY_AWARE_WORKLOAD_SCHEDULING.entry.name
    story("", tell, cpus=(), kubernetes=KubernetesRules(KubernetesVersion(37), {gate: is_on}))


def test_a_group_that_no_domain_holds_says_what_is_missing_in_the_best_one() -> None:
    async def tell(calm: Calm) -> None:
        racks(calm, a0="a", b0="b", b1="b")
        exists(calm, native("near", schedulingPolicy={"gang": {"minCount": 5}}, schedulingConstraints=RACK))
        pods(calm, "near", *"pqrst")
        await calm.after(10)
        assert (calm.on_nodes(), calm.waiting()) == ([], [])
        assert "rack b lacks 1 cpu: 5 requested by 5 pods, 4 free" in calm.told.why["p"]
        waiting_pods = calm.process.scheduler.waiting_pods
        assert waiting_pods.shortfalls() == {"topology.kubernetes.io/rack": (1, 1)}
        racks(calm, b2="b")
        await calm.after(20)
        assert len(calm.on_nodes()) == 5
        assert waiting_pods.shortfalls() == {}
        assert waiting_pods.domain_counts.started == {"topology.kubernetes.io/rack": 1}
        pods(calm, "near", "late")
        await calm.after(10)
        assert len(calm.on_nodes()) == 6
        started = waiting_pods.domain_counts.started
        assert started == {"topology.kubernetes.io/rack": 1}, "one more member is not one more gang"

    story("", tell, cpus=())


def test_evictions_make_room_in_one_domain_or_do_not_happen() -> None:
    async def tell(calm: Calm) -> None:
        racks(calm, a0="a", b0="b", b1="b")
        for number in range(6):
            calm.pod(f"low{number}")
        await calm.after(5)
        spec = {"priority": 10} | containers(1000)
        for size in (5, 4):
            exists(calm, native("near", schedulingPolicy={"gang": {"minCount": size}}, schedulingConstraints=RACK))
            for number in range(5):
                if f"high{number}" not in calm.server.pods:
                    calm.server.create_pod(f"high{number}", {"schedulingGroup": {"podGroupName": "near"}} | spec, {})
            await calm.after(120)
            inside = {node for name, node in nodes_of(calm).items() if name.startswith("high")}
            assert inside == (set() if size == 5 else {"b0", "b1"})
            assert sum(name.startswith("low") for name in calm.server.pods) == (6 if size == 5 else 2)

    story("", tell, cpus=())


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulingConstraints": {}},
        {"schedulingConstraints": {"topology": []}},
        {"disruptionMode": "Pod", "priority": 7, "priorityClassName": "high"},
        {"disruptionMode": {"single": {}}, "priority": 0},
        {"disruptionMode": "PodGroup"},
        {"disruptionMode": {"all": {}}, "workloadRef": {"workloadName": "w", "templateName": "t"}},
        {"podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}},
    ],
)
def test_fields_that_restrict_nothing_hold_nobody(spec: dict[str, Any]) -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, native("train", **GANG_OF_2, **spec))
        pods(calm, "train", "a", "b")
        await calm.after(5)
        assert calm.on_nodes() == ["a", "b"]

    story("", tell, cpus=(2,))


@pytest.mark.parametrize(
    ("spec", "goes"),
    [
        ({"disruptionMode": "Pod"}, True),
        ({"disruptionMode": {"single": {}}}, True),
        ({}, True),
        ({"disruptionMode": "PodGroup"}, False),
        ({"disruptionMode": {"all": {}}}, False),
        ({"disruptionMode": {"later": {}}}, False),
    ],
)
def test_part_of_a_group_that_is_disrupted_whole_is_never_evicted(spec: dict[str, Any], goes: bool) -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, native("train", **GANG_OF_2, **spec))
        pods(calm, "train", "a", "b")
        await calm.after(5)
        assert calm.on_nodes() == ["a", "b"]
        calm.pod("important", priority=10)
        await calm.after(60)
        assert ("important" in calm.on_nodes()) is goes
        assert len(calm.on_nodes()) == 2

    story("", tell, cpus=(1, 1))


@pytest.mark.parametrize(("mode", "goes"), [("Pod", True), ("PodGroup", False)])
def test_part_of_a_group_that_is_disrupted_whole_is_never_evicted_for_a_queue(mode: str, goes: bool) -> None:
    queues = "queue a for pods where pod.label.mine min cpu 1\nqueue b for pods where not pod.label.mine\nreclaim\n"

    async def tell(calm: Calm) -> None:
        exists(calm, native("train", **GANG_OF_2, disruptionMode=mode))
        pods(calm, "train", "a", "b", "c")
        await calm.after(5)
        assert calm.on_nodes() == ["a", "b", "c"]
        calm.pod("entitled", mine="yes")
        await calm.after(60)
        assert ("entitled" in calm.on_nodes()) is goes

    story(queues, tell, cpus=(1, 1, 1))


SINCE_137 = KubernetesRules(KubernetesVersion(37))


@pytest.mark.parametrize("policy", [{"basic": {}}, {"gang": {"minCount": 1}}])
def test_pods_of_a_group_that_any_of_them_completes_are_evicted_one_by_one_for_a_queue(policy: dict[str, Any]) -> None:
    queues = "queue a for pods where pod.label.mine min cpu 1\nqueue b for pods where not pod.label.mine\nreclaim\n"

    async def tell(calm: Calm) -> None:
        calm.server.set_node("n0", cpu=1, labels={"rack": "r", "is": "first"})
        await calm.after(1)
        exists(calm, native("train", schedulingPolicy=policy, schedulingConstraints={"topology": [{"key": "rack"}]}))
        pods(calm, "train", "a")
        await calm.after(5)
        calm.server.set_node("n1", cpu=2, labels={"rack": "r"})
        pods(calm, "train", "b", "c")
        await calm.after(5)
        assert calm.on_nodes() == ["a", "b", "c"]
        calm.server.create_pod("entitled", {"nodeSelector": {"is": "first"}} | containers(1000), {"mine": "yes"})
        await calm.after(60)
        assert calm.on_nodes() == ["b", "c", "entitled"]

    story(queues, tell, cpus=(), kubernetes=SINCE_137)


@pytest.mark.parametrize("policy", ["", "gang by pod.label.job size 1"])
def test_since_1_37_a_group_that_is_disrupted_whole_is_one_victim(policy: str) -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, native("train", **GANG_OF_2, disruptionMode={"all": {}}))
        pods(calm, "train", "a", "b", "c")
        await calm.after(5)
        assert calm.on_nodes() == ["a", "b", "c"]
        calm.pod("important", priority=10)
        await calm.after(60)
        assert "important" in calm.on_nodes()
        assert not {"a", "b", "c"} & set(calm.server.pods), (
            "all of them go, also those on other nodes and above minCount"
        )

    story(policy, tell, cpus=(1, 1, 1), kubernetes=SINCE_137)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priority": 7}, "has priority 7, but this pod has priority 0"),
        ({"preemptionPolicy": "Never"}, "has the preemptionPolicy Never, but this pod has PreemptLowerPriority"),
        ({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}, ""),
    ],
)
def test_since_1_37_pods_and_their_group_must_agree(spec: dict[str, Any], why: str) -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, native("train", **GANG_OF_2, **spec))
        pods(calm, "train", "a", "b")
        await calm.after(10)
        assert calm.on_nodes() == ([] if why else ["a", "b"])
        assert why in calm.told.why.get("a", "")

    gates = {Feature.POD_GROUP_PREEMPTION_POLICY.entry.name: True}
    story("", tell, cpus=(2,), kubernetes=KubernetesRules(KubernetesVersion(37), gates))


def test_a_group_that_shares_claims_starts_if_the_feature_gate_is_on() -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, native("train", **GANG_OF_2, resourceClaims=[{"name": "net", "resourceClaimName": "net"}]))
        pods(calm, "train", "a", "b")
        await calm.after(5)
        assert calm.on_nodes() == ["a", "b"]

    gates = {Feature.DRA_WORKLOAD_RESOURCE_CLAIMS.entry.name: True}
    story("", tell, cpus=(2,), kubernetes=KubernetesRules(KubernetesVersion(37), gates))


def test_since_1_37_a_whole_group_is_spared_where_a_pod_alone_does() -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, native("train", **GANG_OF_2, disruptionMode={"all": {}}))
        pods(calm, "train", "a", "b")
        calm.pod("plain")
        await calm.after(5)
        calm.pod("important", priority=10)
        await calm.after(60)
        assert calm.on_nodes() == ["a", "b", "important"]

    story("", tell, cpus=(1, 1, 1), kubernetes=SINCE_137)


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({"disruptionMode": {"all": {}}}, 10),
        ({"disruptionMode": {"later": {}}}, 0),
        ({"disruptionMode": {"all": {}}, "parentCompositePodGroupName": "tree"}, 0),
    ],
)
def test_since_1_37_groups_stay_whose_members_must_or_whose_mode_is_not_known(
    spec: dict[str, Any], priority: int
) -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, gang("train", 2))
        pods(calm, "train", "a")
        calm.server.create_pod(
            "b", {"schedulingGroup": {"podGroupName": "train"}, "priority": priority} | containers(1000), {}
        )
        await calm.after(5)
        assert calm.on_nodes() == ["a", "b"]
        exists(calm, native("train", **GANG_OF_2, **spec))
        calm.pod("important", priority=5)
        await calm.after(60)
        assert calm.on_nodes() == ["a", "b"]

    story("", tell, cpus=(1, 1), kubernetes=SINCE_137)


def test_a_pod_without_a_group_is_evicted_instead() -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, native("train", **GANG_OF_2, disruptionMode="PodGroup"))
        pods(calm, "train", "a", "b")
        calm.pod("plain")
        await calm.after(5)
        calm.pod("important", priority=10)
        await calm.after(60)
        assert calm.on_nodes() == ["a", "b", "important"]

    story("", tell, cpus=(1, 1, 1))


def test_groups_of_the_scheduler_plugins_are_respected() -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, coscheduling("train", 2))
        labelled(calm, "train", "a")
        labelled(calm, "late", "b")
        await calm.after(10)
        assert calm.on_nodes() == []
        assert "waiting for PodGroup default/late (scheduling.x-k8s.io)" in calm.told.why["b"]
        labelled(calm, "train", "c")
        await calm.after(3)
        assert calm.on_nodes() == ["a", "c"]

    story("", tell, cpus=(4,))


def test_only_a_new_size_of_a_group_wakes_its_pods() -> None:
    async def tell(calm: Calm) -> None:
        group = gang("train", 3)
        exists(calm, group)
        pods(calm, "train", "a", "b")
        await calm.after(5)
        before = calm.process.scheduler.context.wakeups.changes
        condition = PodCondition(type="PodGroupScheduled", status="False")
        exists(calm, msgspec.structs.replace(group, status=PodGroupStatus(conditions=[condition])))
        assert calm.process.scheduler.context.wakeups.changes == before
        exists(calm, gang("train", 2))
        await calm.after(1)
        assert calm.on_nodes() == ["a", "b"]

    story("", tell, cpus=(4,))


def test_the_label_alone_has_no_effect_in_a_cluster_without_such_groups() -> None:
    async def tell(calm: Calm) -> None:
        labelled(calm, "train", "a")
        await calm.after(3)
        assert calm.on_nodes() == ["a"]

    story("", tell, cpus=(4,))


@pytest.mark.parametrize("policy", ["", "gang by pod.label.job size 1 within 60s if pod.label.job\n"])
def test_a_group_and_a_gang_clause_hold_together(policy: str) -> None:
    async def tell(calm: Calm) -> None:
        exists(calm, gang("train", 2))
        pods(calm, "train", "a", "b")
        await calm.after(5)
        assert calm.on_nodes() == ["a", "b"]

    story(policy, tell, cpus=(2,))
