"""Preemption for a PodGroup by the rules of 1.37: all that may go is gone, it is placed, then what fits is back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.objects import PodDisruptionBudget
from kube_policy_scheduler.framework.groups import whole_preemption
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules, KubernetesVersion
from tests.daemon.test_composite_groups import child, composite, exist
from tests.daemon.test_pod_groups import SINCE_137, exists, gang, native
from tests.simulation.calm import Calm, story
from tests.simulation.chaos import containers

BUDGET = {
    "metadata": {"name": "safe", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"safe": "yes"}}},
    "status": {"disruptionsAllowed": 0},
}
MOST_PODS = 8
"""That a node of the story takes."""
units = st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=5).filter(
    lambda found: sum(size for size, _ in found) <= MOST_PODS
)
"""From the most to the least important: how many pods go together, and whether a budget protects them."""


def members(calm: Calm, number: int) -> None:
    for at in range(number):
        spec = {"schedulingGroup": {"podGroupName": "train"}, "priority": 10} | containers(1000)
        calm.server.create_pod(f"train{at}", spec, {})


def low(calm: Calm, name: str, priority: int, *, group: str = "", node: str = "", safe: bool = False) -> None:
    spec: dict[str, Any] = {"priority": priority} | containers(1000)
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    calm.server.create_pod(name, spec, {"safe": "yes"} if safe else {})


@given(units, st.data())
def test_units_come_back_in_order_as_far_as_they_fit(low_units: list[tuple[int, bool]], data: st.DataObject) -> None:
    """On one node that is full of them: first the protected ones, then the others, the most important first."""
    total = sum(size for size, _ in low_units)
    wanted = data.draw(st.integers(1, total))
    left, gone = total - wanted, set[str]()
    for is_safe in (True, False):
        for at, (size, safe) in enumerate(low_units):
            if safe is is_safe and size <= left:
                left -= size
            elif safe is is_safe:
                gone |= {f"p{at}-{number}" for number in range(size)}

    async def tell(calm: Calm) -> None:
        exists(calm, msgspec.convert(BUDGET, PodDisruptionBudget))  # type: ignore[arg-type]
        for at, (size, safe) in enumerate(low_units):
            policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
            exists(calm, native(f"g{at}", **policy, disruptionMode={"all": {}}))
            for number in range(size):
                low(calm, f"p{at}-{number}", -at, group=f"g{at}" if size > 1 else "", safe=safe)
        await calm.after(5)
        assert len(calm.on_nodes()) == total
        exists(calm, gang("train", wanted))
        members(calm, wanted)
        await calm.after(60)
        assert {f"train{at}" for at in range(wanted)} <= set(calm.on_nodes())
        there = {f"p{at}-{number}" for at, (size, _) in enumerate(low_units) for number in range(size)}
        assert there - set(calm.server.pods) == gone

    story("", tell, cpus=(total,), kubernetes=SINCE_137)


def test_the_least_important_pods_of_the_cluster_go_wherever_they_are() -> None:
    async def tell(calm: Calm) -> None:
        for node, priorities in {"n0": (5, -2), "n1": (4, -1), "n2": (3, -3)}.items():
            for number, priority in enumerate(priorities):
                low(calm, f"{node}-{number}", priority, node=node)
        await calm.after(5)
        assert len(calm.on_nodes()) == 6
        exists(calm, gang("train", 2))
        members(calm, 2)
        await calm.after(0.2)
        text = "pod group preemption found a placement for podgroup, preempting 2 victims"
        assert all(text in calm.told.why[f"train{at}"] for at in range(2))
        await calm.after(60)
        assert {"train0", "train1"} <= set(calm.on_nodes())
        assert sum(1 for name in calm.server.pods if name.startswith("n")) == 4, "no more than needed"
        assert {"n0-0", "n1-0", "n2-0"} <= set(calm.server.pods), "the important ones stay"

    story("", tell, cpus=(2, 2, 2), kubernetes=SINCE_137)


def test_no_pod_comes_back_that_a_filter_counts_on_another_node() -> None:
    """At most one noisy pod may be anywhere: the one of a lower priority goes, though nobody needs its node."""
    quiet = "filter count(p in cluster.pods where p.priority <= 0) < 2 if pod.priority > 0"

    async def tell(calm: Calm) -> None:
        for at in range(3):
            low(calm, f"noisy{at}", 0, node="n0")
        calm.server.create_pod("elsewhere", {"priority": -1} | containers(3000), {})
        await calm.after(5)
        exists(calm, gang("train", 2))
        spec = {"schedulingGroup": {"podGroupName": "train"}, "priority": 10} | containers(1000)
        for at in range(2):
            calm.server.create_pod(f"train{at}", spec | {"nodeSelector": {"kubernetes.io/hostname": "n0"}}, {})
        await calm.after(0.2)
        assert all("preempting 3 victims" in calm.told.why[f"train{at}"] for at in range(2))

    story(quiet, tell, cpus=(3, 3), kubernetes=SINCE_137)


def test_pods_on_several_nodes_go_for_a_group_though_none_of_its_pods_could_evict_them_alone() -> None:
    quiet = "filter count(p in cluster.pods where p.priority <= 0) < 1 if pod.priority > 0"

    async def tell(calm: Calm) -> None:
        for at in range(2):
            low(calm, f"noisy{at}", 0, node=f"n{at}")
        low(calm, "quiet", 1, node="n1")
        await calm.after(5)
        exists(calm, gang("train", 2))
        members(calm, 2)
        await calm.after(60)
        assert calm.on_nodes() == ["quiet", "train0", "train1"]

    story(quiet, tell, cpus=(2, 2), kubernetes=SINCE_137)


@pytest.mark.parametrize("never", ["one", "all", "none"])
@pytest.mark.parametrize("constraints", [{}, {"topology": [{"key": "kubernetes.io/hostname"}]}])
@pytest.mark.parametrize("number", [2, 3])
def test_a_group_evicts_nobody_if_one_of_its_pods_never_does(
    never: str, constraints: dict[str, Any], number: int
) -> None:
    async def tell(calm: Calm) -> None:
        for at in range(2):
            low(calm, f"p{at}", 0)
        await calm.after(5)
        for at in range(number):
            spec: dict[str, Any] = {"schedulingGroup": {"podGroupName": "train"}, "priority": 10} | containers(1000)
            if never == "all" or (never == "one" and at == number - 1):
                spec["preemptionPolicy"] = "Never"
            calm.server.create_pod(f"train{at}", spec, {})
        await calm.after(1)
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        exists(calm, native("train", **policy, **({"schedulingConstraints": constraints} if constraints else {})))
        await calm.after(90)
        assert len(calm.on_nodes()) == 2
        assert all(name.startswith("train" if never == "none" else "p") for name in calm.on_nodes())

    story("", tell, cpus=(2,), kubernetes=SINCE_137)


def test_of_a_gang_only_those_go_that_it_can_do_without_if_that_is_enough() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(4):
            calm.pod(f"elastic{number}", job="e", size="2")
        await calm.after(5)
        assert len(calm.on_nodes()) == 4
        exists(calm, gang("train", 2))
        members(calm, 2)
        await calm.after(60)
        assert calm.on_nodes() == ["elastic0", "elastic1", "train0", "train1"]

    story("gang by pod.label.job size number(pod.label.size) if pod.label.job", tell, cpus=(4,), kubernetes=SINCE_137)


@pytest.mark.parametrize("most", [2, 3, 1000])
def test_no_pod_stays_of_a_gang_that_goes_though_not_all_pods_are_taken_away(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_preemption, "MOST_AWAY", most)

    async def tell(calm: Calm) -> None:
        for number in range(2):
            calm.pod(f"elastic{number}", job="e", size="2")
        await calm.after(3)
        calm.server.set_node("n1", cpu=1, labels={})
        calm.pod("elastic2", job="e", size="2")
        await calm.after(5)
        assert calm.on_nodes() == ["elastic0", "elastic1", "elastic2"]
        exists(calm, gang("train", 2))
        for at in range(2):
            spec = {"schedulingGroup": {"podGroupName": "train"}, "priority": 10} | containers(1000)
            calm.server.create_pod(f"train{at}", spec | {"nodeSelector": {"kubernetes.io/hostname": "n0"}}, {})
        await calm.after(60)
        assert calm.on_nodes() == ["train0", "train1"]

    story("gang by pod.label.job size number(pod.label.size) if pod.label.job", tell, cpus=(2,), kubernetes=SINCE_137)


@pytest.mark.parametrize("above", [0, 2])
def test_a_group_that_does_not_fit_even_so_evicts_nobody(above: int) -> None:
    async def tell(calm: Calm) -> None:
        for number in range(3):
            low(calm, f"p{number}", 20 if number < above else 0)
        await calm.after(5)
        exists(calm, gang("train", 4 - above))
        members(calm, 4 - above)
        await calm.after(60)
        assert calm.on_nodes() == ["p0", "p1", "p2"]

    story("", tell, cpus=(3,), kubernetes=SINCE_137)


def test_all_members_that_fit_get_room() -> None:
    """Not only those that the group needs."""

    async def tell(calm: Calm) -> None:
        for number in range(5):
            low(calm, f"p{number}", number)
        await calm.after(5)
        members(calm, 4)
        await calm.after(1)
        exists(calm, gang("train", 2))
        await calm.after(0.2)
        assert "preempting 4 victims" in calm.told.why["train0"]
        await calm.after(60)
        assert calm.on_nodes() == ["p4", "train0", "train1", "train2", "train3"]

    story("", tell, cpus=(5,), kubernetes=SINCE_137)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("minor", [36, 37])
def test_since_1_37_a_pod_that_its_group_can_do_without_evicts_nobody(minor: int, size: int) -> None:
    async def tell(calm: Calm) -> None:
        for number in range(3):
            low(calm, f"p{number}", number)
        await calm.after(5)
        exists(calm, gang("train", size))
        members(calm, 2)
        await calm.after(5)
        spec = {"schedulingGroup": {"podGroupName": "train"}, "priority": 10} | containers(1000)
        calm.server.create_pod("more", spec, {})
        await calm.after(90)
        there = set(calm.on_nodes())
        assert ("more" in there) is (minor < 37)
        assert len(there & {"p0", "p1", "p2"}) == (3 if minor >= 37 else 2)
        calm.server.create_pod("alone", {"priority": 10} | containers(1000), {})
        await calm.after(90)
        assert "alone" in calm.on_nodes(), "it is in no group"

    story("", tell, cpus=(5,), kubernetes=KubernetesRules(KubernetesVersion(minor)))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 6))
def test_composite_groups_get_room_for_all_groups_that_fit(size: int, needed: int, more: int, total: int) -> None:
    """If enough of their groups fit; the least important pods go, whichever group takes their place."""
    number = needed + more - 1
    fitting = min(number, total // size)
    wanted = fitting * size if fitting >= needed else 0

    async def tell(calm: Calm) -> None:
        for at in range(total):
            low(calm, f"p{at}", at - 3)
        await calm.after(5)
        assert len(calm.on_nodes()) == total
        for at in range(number):
            for each in range(size):
                spec = {"schedulingGroup": {"podGroupName": f"c{at}"}, "priority": 10} | containers(1000)
                calm.server.create_pod(f"c{at}-{each}", spec, {})
        await calm.after(1)
        exist(calm, composite("tree", needed), *(child(f"c{at}", size) for at in range(number)))
        await calm.after(90)
        there = set(calm.on_nodes())
        assert {name for name in there if name.startswith("p")} == {f"p{at}" for at in range(wanted, total)}
        assert len(there) == total
        complete = [at for at in range(number) if {f"c{at}-{each}" for each in range(size)} <= there]
        assert len(complete) == fitting * bool(wanted)

    story("", tell, cpus=(total,), kubernetes=SINCE_137)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=2, max_size=4), st.integers(1, 4), st.data())
def test_of_too_many_pods_those_go_that_are_best_cleared(cpus: list[int], most: int, data: st.DataObject) -> None:
    """A group that fits gets its room, from as many pods as it needs, though not all can be taken away at once."""
    total = sum(cpus)
    wanted = data.draw(st.integers(1, total))

    async def tell(calm: Calm) -> None:
        number = 0
        for at, cpu in enumerate(cpus):
            for _ in range(cpu):
                low(calm, f"p{number}", number, node=f"n{at}")
                number += 1
        await calm.after(5)
        assert len(calm.on_nodes()) == total
        exists(calm, gang("train", wanted))
        calm.server.create_pod("other", {"priority": -9} | containers(1000), {})
        for at in range(wanted):
            spec = {"schedulingGroup": {"podGroupName": "train"}, "priority": 50} | containers(1000)
            calm.server.create_pod(f"train{at}", spec, {})
        await calm.after(90)
        there = set(calm.on_nodes())
        assert {f"train{at}" for at in range(wanted)} <= there
        assert len(there) == total
        if wanted <= most <= cpus[0]:
            assert {f"p{at}" for at in range(cpus[0], total)} <= there, "the first node has the least important pods"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_preemption, "MOST_AWAY", most)
        story("", tell, cpus=tuple(cpus), kubernetes=SINCE_137)


@pytest.mark.parametrize("kubernetes", ["1.36", "1.36 with the gate", "1.37", "many"])
def test_before_1_37_and_with_many_pods_the_most_important_pod_stays(
    kubernetes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group gets its room in any case."""
    monkeypatch.setattr(whole_preemption, "MOST_AWAY", 3 if kubernetes == "many" else 1000)
    gates = {Feature.WORKLOAD_AWARE_PREEMPTION.entry.name: True} if "gate" in kubernetes else {}
    rules = KubernetesRules(KubernetesVersion(36 if kubernetes.startswith("1.36") else 37), gates)

    async def tell(calm: Calm) -> None:
        for number in range(4):
            low(calm, f"p{number}", number)
        await calm.after(5)
        exists(calm, gang("train", 2))
        members(calm, 2)
        await calm.after(60)
        there = calm.on_nodes()
        assert len(there) == 4
        assert {"p3", "train0", "train1"} <= set(there)

    story("", tell, cpus=(2, 2), kubernetes=rules)
