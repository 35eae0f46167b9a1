"""CompositePodGroups of Kubernetes 1.37: groups of groups, whose pods start when enough of the groups are complete."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster.objects import CompositePodGroup, PodGroup
from kube_policy_scheduler.kubernetes_rules import KubernetesRules, KubernetesVersion
from tests.daemon.test_pod_groups import SINCE_137, native, nodes_of, pods
from tests.simulation.calm import Calm, story
from tests.simulation.chaos import containers

RACK, BLOCK = "topology.kubernetes.io/rack", "topology.kubernetes.io/block"


def composite(name: str, needed: int | None, *, parent: str = "", **spec: Any) -> CompositePodGroup:
    policy: dict[str, Any] = {"gang": {"minGroupCount": needed}} if needed is not None else {"basic": {}}
    spec = {"schedulingPolicy": policy, "parentCompositePodGroupName": parent or None} | spec
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, CompositePodGroup)


def child(name: str, size: int | None, *, of: str = "tree", **spec: Any) -> PodGroup:
    policy: dict[str, Any] = {"gang": {"minCount": size}} if size is not None else {"basic": {}}
    return native(name, schedulingPolicy=policy, parentCompositePodGroupName=of, **spec)


def within(key: str) -> dict[str, Any]:
    return {"schedulingConstraints": {"topology": [{"key": key}]}}


def exist(calm: Calm, *groups: PodGroup | CompositePodGroup) -> None:
    for group in groups:
        calm.process.scheduler.event_handlers.object_changed(group)


def numbered(calm: Calm, group: str, number: int) -> None:
    pods(calm, group, *(f"{group}{each}" for each in range(number)))


def node(calm: Calm, name: str, *, cpu: int = 1, **labels: str) -> None:
    keys = {"rack": RACK, "block": BLOCK}
    calm.server.set_node(name, cpu=cpu, labels={keys[key]: value for key, value in labels.items()})


def test_pods_wait_until_enough_groups_are_complete() -> None:
    async def tell(calm: Calm) -> None:
        exist(calm, composite("tree", 2), child("a", 2), child("b", 2))
        numbered(calm, "a", 2)
        await calm.after(10)
        assert (calm.on_nodes(), calm.waiting()) == ([], [])
        assert calm.told.why["a0"] == (
            "waiting for minCount pods from a gang to appear in scheduling queue:"
            ' gang "default/tree" starts with 4 pods in 2 of its groups (CompositePodGroup tree)'
        )
        numbered(calm, "b", 2)
        await calm.after(10)
        assert (calm.on_nodes(), calm.waiting()) == ([], []), "three places for four pods"
        queued = next(iter(calm.process.scheduler.queue))
        (state, *_) = calm.process.scheduler.waiting_pods.states(queued)
        assert "0 of 4 members have a node, 4 are pending" in state.sentence()
        assert "0 of 2 groups are complete" in state.sentence()
        calm.server.set_node("n9", cpu=1, labels={})
        await calm.after(20)
        assert calm.on_nodes() == ["a0", "a1", "b0", "b1"]

    story("", tell, cpus=(3,))


def test_groups_beyond_the_minimum_start_when_they_are_complete_themselves() -> None:
    async def tell(calm: Calm) -> None:
        exist(calm, composite("tree", 1), child("a", 2), child("b", 3))
        numbered(calm, "a", 2)
        await calm.after(5)
        assert calm.on_nodes() == ["a0", "a1"]
        numbered(calm, "b", 3)
        await calm.after(5)
        assert calm.on_nodes() == ["a0", "a1"], "two places for three pods"
        calm.server.set_node("n9", cpu=1, labels={})
        await calm.after(20)
        assert calm.on_nodes() == ["a0", "a1", "b0", "b1", "b2"]

    story("", tell, cpus=(4,))


def test_a_group_that_does_not_fit_leaves_the_minimum_to_the_others() -> None:
    """One of two groups is enough. What the larger one could get is not held for it."""

    async def tell(calm: Calm) -> None:
        exist(calm, composite("tree", 1), child("big", 6), child("small", 2))
        numbered(calm, "big", 6)
        await calm.after(1)
        numbered(calm, "small", 2)
        await calm.after(10)
        assert calm.on_nodes() == ["small0", "small1"]

    story("", tell, cpus=(4,))


@pytest.mark.parametrize("needed", [None, 1])
def test_groups_of_a_basic_one_are_independent(needed: int | None) -> None:
    async def tell(calm: Calm) -> None:
        exist(calm, composite("tree", needed), child("a", None), child("b", 2))
        numbered(calm, "a", 1)
        numbered(calm, "b", 1)
        await calm.after(5)
        assert calm.on_nodes() == ["a0"]

    story("", tell, cpus=(4,))


def test_groups_may_come_in_any_order_after_the_pods() -> None:
    async def tell(calm: Calm) -> None:
        numbered(calm, "a", 1)
        numbered(calm, "b", 1)
        few = "waiting for CompositePodGroup default/tree: fewer than 2 of its groups exist"
        for group, why in (
            (child("a", 1), "waiting for CompositePodGroup default/tree, which does not exist"),
            (composite("tree", 2, parent="root"), few),
            (composite("root", 1), few),
        ):
            exist(calm, group)
            await calm.after(20)
            assert calm.told.why["a0"].startswith(why), calm.told.why
            assert calm.on_nodes() == []
        exist(calm, child("b", 1))
        await calm.after(5)
        assert calm.on_nodes() == ["a0", "b0"]

    story("", tell, cpus=(4,))


def test_two_levels_of_composite_groups() -> None:
    async def tell(calm: Calm) -> None:
        exist(calm, composite("root", 2), composite("left", 2, parent="root"), composite("right", 1, parent="root"))
        exist(calm, child("a", 1, of="left"), child("b", 1, of="left"), child("c", 2, of="right"))
        for name, number in (("a", 1), ("b", 1)):
            numbered(calm, name, number)
        await calm.after(5)
        assert calm.on_nodes() == []
        numbered(calm, "c", 2)
        await calm.after(5)
        assert calm.on_nodes() == ["a0", "b0", "c0", "c1"]

    story("", tell, cpus=(4,))


@pytest.mark.parametrize("taken", [0, 1])
def test_one_block_and_each_group_in_one_rack(taken: int) -> None:
    """Block A has more room, but only one rack for a whole group; with a rack of B taken there is no room at all."""

    async def tell(calm: Calm) -> None:
        for rack, number in (("a1", 5), ("a2", 4), ("a3", 4), ("b1", 5), ("b2", 5 - taken)):
            for each in range(number):
                node(calm, f"{rack}-{each}", rack=rack, block=rack[0])
        exist(calm, composite("tree", 2, **within(BLOCK)), *(child(name, 5, **within(RACK)) for name in "xy"))
        numbered(calm, "x", 5)
        numbered(calm, "y", 5)
        await calm.after(30)
        where = {name: place.partition("-")[0] for name, place in nodes_of(calm).items()}
        if taken:
            assert where == {}
            why = calm.told.why["y0"]
            assert "of its groups (CompositePodGroup tree)" in why or "(PodGroup y)" in why
            assert "block a lacks" in why
            return
        racks = {group: {rack for name, rack in where.items() if name[0] == group} for group in "xy"}
        assert sorted(map(sorted, racks.values())) == [["b1"], ["b2"]]
        assert len(where) == 10

    story("", tell, cpus=())


def test_a_block_in_which_only_some_groups_fit_is_left_again() -> None:
    """Counted by room, both racks of block A have enough for either group; but together they do not fit there."""

    async def tell(calm: Calm) -> None:
        for rack, number in (("a1", 6), ("a2", 2), ("b1", 4), ("b2", 4)):
            for each in range(number):
                node(calm, f"{rack}-{each}", rack=rack, block=rack[0])
        exist(calm, composite("tree", 2, **within(BLOCK)), *(child(name, 4, **within(RACK)) for name in "xy"))
        numbered(calm, "x", 4)
        numbered(calm, "y", 4)
        await calm.after(60)
        assert {place[0] for place in nodes_of(calm).values()} == {"b"}
        assert len(calm.on_nodes()) == 8
        counts = calm.process.scheduler.waiting_pods.domain_counts
        assert counts.started == {BLOCK: 1, RACK: 2}

    story("domains by roomiest", tell, cpus=())


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        (
            [composite("tree", 1, priority=7), child("a", 1)],
            "CompositePodGroup default/tree has priority 7, but this pod has priority 0",
        ),
        (
            [composite("tree", 1, schedulingPolicy={"elastic": {}}), child("a", 1)],
            "CompositePodGroup default/tree has a scheduling policy other than `basic` and `gang`",
        ),
        (
            [composite("tree", 1, schedulingConstraints={"power": {"max": "4"}}), child("a", 1)],
            "CompositePodGroup default/tree has scheduling constraints that this scheduler does not know: power",
        ),
        (
            [composite("tree", 1, parent="up"), composite("up", 1, parent="tree"), child("a", 1)],
            "belongs to composite groups that belong to each other: default/tree of default/up of default/tree",
        ),
        (
            [composite(f"c{n}", 1, parent=f"c{n + 1}" if n < 3 else "") for n in range(4)] + [child("a", 1, of="c0")],
            "belongs to a tree of groups with more than 4 levels",
        ),
        (
            [composite("tree", 1), *(child(f"a{n or ''}", 1) for n in range(1001))],
            "CompositePodGroup default/tree has more than 1000 PodGroups",
        ),
    ],
    ids=["priority", "policy", "constraint", "cycle", "levels", "many"],
)
def test_what_is_not_done_holds_the_pods_with_the_reason(groups: list[Any], why: str) -> None:
    async def tell(calm: Calm) -> None:
        exist(calm, *groups)
        numbered(calm, "a", 1)
        await calm.after(10)
        assert calm.on_nodes() == []
        assert why in calm.told.why["a0"]

    story("", tell, cpus=(4,))


def test_evictions_make_room_for_enough_groups_or_do_not_happen() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(3):
            calm.pod(f"low{number}", priority=-1)
        await calm.after(5)
        exist(calm, composite("tree", 2), child("a", 2), child("b", 2))
        numbered(calm, "a", 2)
        numbered(calm, "b", 2)
        await calm.after(60)
        assert calm.on_nodes() == ["low0", "low1", "low2"], "three nodes are too few, even if pods are evicted"
        calm.server.set_node("n9", cpu=1, labels={})
        await calm.after(60)
        assert calm.on_nodes() == ["a0", "a1", "b0", "b1"]

    story("", tell, cpus=(1, 1, 1))


@pytest.mark.parametrize("minor", [36, 37])
def test_since_1_37_evictions_make_room_for_groups_that_need_a_rack_each(minor: int) -> None:
    async def tell(calm: Calm) -> None:
        for rack in ("r0", "r1", "r2"):
            for at in range(2):
                node(calm, f"{rack}-{at}", rack=rack)
        await calm.after(1)
        for number in range(6):
            calm.pod(f"low{number}", priority=number - 9)
        await calm.after(5)
        assert len(calm.on_nodes()) == 6
        exist(calm, composite("tree", 2), *(child(name, 2, **within(RACK)) for name in "ab"))
        numbered(calm, "a", 2)
        numbered(calm, "b", 2)
        await calm.after(90)
        there = calm.on_nodes()
        assert len(there) == 6
        assert ({"a0", "a1", "b0", "b1"} <= set(there)) is (minor >= 37)
        nodes = nodes_of(calm)
        racks = [{nodes[pod].partition("-")[0] for pod in nodes if pod.startswith(group)} for group in "ab"]
        assert [len(rack) for rack in racks] == ([1, 1] if minor >= 37 else [0, 0])

    story("", tell, cpus=(), kubernetes=KubernetesRules(KubernetesVersion(minor)))


@pytest.mark.parametrize(
    ("mode", "child_mode", "goes"),
    [
        (None, None, True),
        ({"single": {}}, {"single": {}}, True),
        ({"all": {}}, None, False),
        (None, {"all": {}}, False),
        ({"later": {}}, None, False),
    ],
)
def test_part_of_a_tree_that_is_disrupted_whole_is_never_evicted(mode: Any, child_mode: Any, goes: bool) -> None:
    async def tell(calm: Calm) -> None:
        exist(calm, composite("root", 1, disruptionMode=mode), composite("tree", 2, parent="root"))
        exist(calm, *(child(name, 1, disruptionMode=child_mode) for name in "ab"))
        numbered(calm, "a", 1)
        numbered(calm, "b", 1)
        await calm.after(5)
        assert calm.on_nodes() == ["a0", "b0"]
        calm.pod("important", priority=10)
        await calm.after(60)
        assert ("important" in calm.on_nodes()) is goes

    story("", tell, cpus=(1, 1))


@pytest.mark.parametrize(
    ("modes", "priority", "gone"),
    [
        ({"root": {"all": {}}}, 0, {"a0", "b0", "c0"}),
        ({"tree": {"all": {}}}, 0, {"a0", "b0"}),
        ({"tree": {"all": {}}, "a": {"all": {}}}, 0, {"a0", "b0"}),
        ({"a": {"all": {}}, "root": {"single": {}}}, 0, {"a0"}),
        ({"root": {"all": {}}}, 10, set()),
        ({"root": {"later": {}}, "tree": {"all": {}}}, 0, set()),
    ],
)
def test_since_1_37_a_tree_that_is_disrupted_whole_is_one_victim(
    modes: dict[str, Any], priority: int, gone: set[str]
) -> None:
    """The preemptor fits only where `a0` is; `c0` has a priority."""

    async def tell(calm: Calm) -> None:
        exist(calm, composite("root", 1, disruptionMode=modes.get("root")))
        exist(calm, composite("tree", 2, parent="root", disruptionMode=modes.get("tree")))
        exist(calm, *(child(name, 1, disruptionMode=modes.get(name)) for name in "ab"), child("c", 1, of="root"))
        pods(calm, "a", "a0")
        await calm.after(5)
        assert calm.on_nodes() == []
        pods(calm, "b", "b0")
        await calm.after(5)
        group = {"schedulingGroup": {"podGroupName": "c"}, "priority": priority}
        calm.server.create_pod("c0", group | containers(1000), {})
        await calm.after(5)
        assert calm.on_nodes() == ["a0", "b0", "c0"]
        where = {"kubernetes.io/hostname": calm.server.pods["a0"]["spec"]["nodeName"]}
        calm.server.create_pod("important", {"priority": 10, "nodeSelector": where} | containers(1000), {})
        await calm.after(60)
        assert {"a0", "b0", "c0"} - set(calm.server.pods) == gone
        assert ("important" in calm.on_nodes()) is bool(gone)

    story("", tell, cpus=(1, 1, 1), kubernetes=SINCE_137)


def test_groups_that_do_not_fit_together_hold_nothing() -> None:
    async def tell(calm: Calm) -> None:
        exist(calm, composite("tree", 2), child("a", 2), child("b", 2))
        numbered(calm, "a", 2)
        numbered(calm, "b", 2)
        await calm.after(5)
        assert calm.waiting() == []
        calm.pod("small")
        await calm.after(0.5)
        assert calm.on_nodes() == ["small"]

    story("", tell, cpus=(3,))
