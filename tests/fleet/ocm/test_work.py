"""How much work Placements of a hub are, and which of them a change concerns."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.ocm.cluster_sets import ClusterSets
from kube_policy_scheduler.fleet.ocm.hub import LOOKED_AT, Hub
from kube_policy_scheduler.fleet.ocm.objects import ClusterPlacement
from kube_policy_scheduler.fleet.ocm.placer import Decided
from kube_policy_scheduler.fleet.ocm.shares import MOST_AT_ONCE, MOST_IN_ALL, Shares, requirements
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.times import Steady
from tests.fleet.ocm.hub import cluster_set, member, placement, set_binding

WALL = 1_767_225_600.0


def predicates(count: int) -> list[dict[str, Any]]:
    return [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"tier": f"t{n}"}}}} for n in range(count)]


def named(name: str, *, namespace: str = "shop", **spec: Any) -> ClusterPlacement:
    made = placement(name, uid=f"p-{name}", **spec)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, namespace=namespace))


def settle(made: Hub, at: float) -> list[Decided]:
    """Decide all that is to be decided at a time, and write it."""
    found: list[Decided] = []
    while (work := made.next(Steady(at), WALL + at)) is not None:
        if isinstance(work, Decided):
            found.append(work)
            if work.status != work.placement.status:
                meta = work.placement.metadata
                meta = msgspec.structs.replace(meta, resource_version=str(int(meta.resource_version) + 1))
                made.set_placement(
                    msgspec.structs.replace(work.placement, status=work.status, metadata=meta), Steady(at)
                )
        made.done(work, Steady(at))
    return found


def names(found: list[Decided]) -> set[str]:
    return {each.key[1] for each in found}


def hub(*asked: ClusterPlacement, text: str = "", clusters: int = 3) -> Hub:
    """Return a hub whose namespaces `shop` and `lab` have a set each."""
    made, now = Hub(["policy-scheduler"]), Steady(0.0)
    made.replace_sets([cluster_set(), cluster_set("lab")], now)
    made.replace_bindings([set_binding(), set_binding("lab", "lab")], now)
    made.replace_clusters([member(f"c{n:04}") for n in range(clusters)], now)
    made.set_cluster(member("l1", cluster_set="lab"), now)
    made.replace_placements(asked, now)
    policies = FleetPolicies()
    if text:
        loaded = load([Source("fleet.policy", text)])
        assert loaded.policy_set is not None, loaded.diagnostics
        policies = loaded.policy_set.fleet
    decide = (lambda asked, where: policies.decide(asked, where)) if text else place
    made.use(lambda fleet: {}, decide, now, reads=policies.fields, looks=bool(text))
    return made


TWO = (named("web"), named("study", namespace="lab"))
READS = {
    "no policy": ("", set()),
    "nothing of it": ("for workloads where true\nscore 1 if cluster.label.x == \"y\"\n", set()),
    "its condition": ("for workloads where true\nfilter cluster.ready\n", {"available"}),
    "its age": ("for workloads where true\nfilter (cluster.condition_age.Ready ?? 0s) >= 0s\n", {"available"}),
    "its size": ("for workloads where true\nscore cluster.allocatable.cpu\n", {"cpu"}),
    "the size of all": (
        "for workloads where true\nscore sum(c.allocatable.cpu for c in region.clusters) ?? 0\n", {"cpu"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READS)
def test_a_status_wakes_only_the_placements_that_a_policy_may_decide_otherwise(case: str) -> None:
    text, matters = READS[case]
    made = hub(*TWO, text=text)
    settle(made, 0.0)
    settle(made, 5.0)
    at = 100.0
    for what, value in (("available", "False"), ("cpu", "20"), ("available", "Unknown")):
        at += 100.0
        made.set_cluster(member("c0000", **{what: value}), Steady(at))
        assert names(settle(made, at + 2.0)) == ({"web"} if what in matters else set()), what
        made.set_cluster(member("c0000"), Steady(at + 50.0))
        settle(made, at + 60.0)


def test_a_change_of_what_is_chosen_by_wakes_the_placements_of_its_sets() -> None:
    made = hub(*TWO, named("other", clusterSets=["another"]))
    settle(made, 0.0)
    settle(made, 5.0)
    made.set_cluster(member("c0000", tier="gold"), Steady(100.0))
    assert names(settle(made, 100.0)) == {"web"}
    made.set_cluster(member("c0000", cluster_set="lab", tier="gold"), Steady(200.0))
    assert names(settle(made, 200.0)) == {"web", "study"}
    made.delete_cluster("l1", Steady(220.0))
    assert names(settle(made, 220.0)) == {"study"}
    made.set_cluster(member("new"), Steady(240.0))
    assert names(settle(made, 240.0)) == {"web"}


def test_statuses_that_change_all_the_time_are_paced() -> None:
    made = hub(named("web"), text="for workloads where true\nscore cluster.allocatable.cpu\n")
    settle(made, 0.0)
    decided = 0
    for step in range(200):
        at = 10.0 + step / 20
        made.set_cluster(member(f"c{step % 3:04}", cpu=str(step + 1)), Steady(at))
        decided += len(settle(made, at))
    assert 8 <= decided <= 12, "10 s, and once a second"


def test_without_policies_nothing_is_looked_at_again() -> None:
    made = hub(*TWO)
    settle(made, 0.0)
    made.look_at_some(Steady(50.0))
    assert settle(made, 52.0) == []


def test_one_look_is_bounded_by_the_work_that_placements_are() -> None:
    text = "for workloads where true\nscore 1 if workload.attempts > 0\n"
    small = [named(f"p{n:03}") for n in range(LOOKED_AT + 10)]
    made = hub(*small, text=text)
    settle(made, 0.0)
    settle(made, 5.0)
    made.look_at_some(Steady(50.0))
    assert len(settle(made, 52.0)) == LOOKED_AT
    large = [named(f"p{n:03}", predicates=predicates(300)) for n in range(10)]
    made = hub(*large, text=text, clusters=300)
    settle(made, 0.0)
    settle(made, 5.0)
    made.look_at_some(Steady(50.0))
    assert len(settle(made, 52.0)) == 2


def test_a_placement_over_its_share_is_told_and_the_others_go_on() -> None:
    clusters = 99
    huge = named("huge", predicates=predicates(MOST_AT_ONCE // clusters + 1))
    made = hub(named("web"), huge, clusters=clusters - 1)
    found = {each.key[1]: each for each in settle(made, 0.0)}
    assert len(found["web"].chosen) == clusters - 1
    said = {each.type: (each.status, each.message) for each in found["huge"].status.conditions or ()}
    assert said["PlacementMisconfigured"][0] == "True"
    assert said["PlacementMisconfigured"][1] == (
        "the predicates, groups and tolerations have 8,082 requirements; a Placement may have 4,040 with 99 clusters"
        " and as many Placements as there are now: choose by a label or a cluster set"
    )
    assert found["huge"].objects == ()
    made.set_placement(named("huge", predicates=predicates(10), version="90"), Steady(10.0))
    again = settle(made, 10.0)
    assert names(again) == {"huge"}
    assert {each.outcome.message for each in again}.isdisjoint({said["PlacementMisconfigured"][1]})


def test_a_share_that_grows_is_used() -> None:
    clusters, each = 99, MOST_AT_ONCE // 99 // 2 - 10
    crowd = [named(f"p{n:03}", predicates=predicates(each)) for n in range(MOST_IN_ALL // MOST_AT_ONCE + 5)]
    made = hub(*crowd, clusters=clusters - 1)
    first = settle(made, 0.0)
    over = [one.key for one in first if "a Placement may have" in one.outcome.message]
    assert over
    for one in crowd[: len(crowd) // 2]:
        made.delete_placement((one.metadata.namespace, one.metadata.name), Steady(10.0))
    later = {one.key: one for one in settle(made, 40.0)}
    left = [key for key in over if key in later]
    assert left
    assert not any("a Placement may have" in later[key].outcome.message for key in left)


def test_what_is_little_work_does_not_wait_for_what_is_much() -> None:
    large = [named(f"a{n}", predicates=predicates(1000)) for n in range(3)]
    made = hub(*large, named("web"), clusters=200)
    order = [each.key[1] for each in settle(made, 0.0)]
    assert order[0] == "web"


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=30), st.integers(1, 3000))
def test_shares_are_as_large_as_they_can_be_and_equal_above(needs: list[int], clusters: int) -> None:
    shares = Shares()
    for number, need in enumerate(needs):
        shares.put(("shop", str(number)), need)
    most = shares.most(clusters)
    given_in_all = sum(min(need, most) for need in needs) * clusters
    assert given_in_all <= MOST_IN_ALL
    one_more = sum(min(need, most + 1) for need in needs) * clusters
    assert most == MOST_AT_ONCE // clusters or one_more > MOST_IN_ALL - clusters * len(needs)


def test_all_parts_of_selectors_are_counted() -> None:
    both = {
        "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
        "claimSelector": {"matchExpressions": [{"key": "d", "operator": "Exists"}]},
    }
    groups = {"groupStrategy": {"decisionGroups": [{"groupName": "g", "groupClusterSelector": both}]}}
    asked = named(
        "web",
        predicates=[{"requiredClusterSelector": both}, {}],
        tolerations=[{"key": "x"}],
        decisionStrategy=groups,
    )
    assert requirements(asked) == 4 + 1 + 1 + 4


@given(st.data())
def test_the_members_of_sets_follow_each_change(data: st.DataObject) -> None:
    known, clusters, sets = ClusterSets(), dict[str, Any](), dict[str, Any]()
    labels = st.sampled_from(["gold", "silver"])
    selector = {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"tier": "gold"}}}
    for _ in range(data.draw(st.integers(1, 15))):
        name = data.draw(st.sampled_from(["a", "b"]))
        match data.draw(st.sampled_from(["cluster", "set", "no cluster", "no set"])):
            case "cluster":
                where = data.draw(st.sampled_from(["x", "y"]))
                clusters[name] = member(name, cluster_set=where, tier=data.draw(labels))
                known.set_cluster(clusters[name])
            case "no cluster":
                clusters.pop(name, None)
                known.delete_cluster(name)
            case "set":
                chosen = data.draw(st.sampled_from(["x", "y"]))
                sets[chosen] = cluster_set(chosen, **(selector if data.draw(st.booleans()) else {}))
                known.set_set(sets[chosen])
            case _:
                chosen = data.draw(st.sampled_from(["x", "y"]))
                sets.pop(chosen, None)
                known.delete_set(chosen)
    afresh = ClusterSets()
    afresh.replace_sets([*sets.values()])
    for each in clusters.values():
        afresh.set_cluster(each)
    assert {name: set(inside) for name, inside in known.members.items()} == {
        name: set(inside) for name, inside in afresh.members.items()
    }


def test_the_largest_allowed_placement_is_one_short_turn() -> None:
    clusters = 400
    made = hub(named("web", predicates=predicates(MOST_AT_ONCE // (clusters + 1))), clusters=clusters)
    began = time.process_time()
    assert settle(made, 0.0)
    assert time.process_time() - began < 10.0, "far from minutes, on any machine"
