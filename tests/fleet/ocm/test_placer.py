"""Which managed clusters a Placement gets, and what is written for it; no I/O."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Workload
from kube_policy_scheduler.fleet.ocm.decisions import MOST_DECISIONS, condition, groups_of, objects_of
from kube_policy_scheduler.fleet.ocm.hub import Hub
from kube_policy_scheduler.fleet.ocm.objects import ClusterPlacement, ManagedCluster, PlacementDecision
from kube_policy_scheduler.fleet.ocm.placer import Decide, Decided
from kube_policy_scheduler.fleet.ocm.selecting import MisconfiguredError
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.times import Steady, rfc3339
from tests.fleet.ocm.hub import (
    GROUP,
    IN_GLOBAL,
    OURS,
    cluster_set,
    decision,
    member,
    placement,
    set_binding,
)

NOW = Steady(1000.0)
WALL = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
MOST_CPU = 'for workloads where workload.kind == "Placement"\nscore cluster.allocatable.cpu\n'


def by_policy(text: str) -> Decide:
    loaded = load([Source("fleet.policy", text)])
    assert loaded.policy_set is not None, loaded.diagnostics
    policies = loaded.policy_set.fleet

    def decide(asked: Workload, where: Fleet) -> Outcome:
        return policies.decide(asked, where)

    return decide


def hub(
    *members: ManagedCluster,
    policy: str | None = None,
    asks: ClusterPlacement | None = None,
    decisions: tuple[PlacementDecision, ...] = (),
) -> Hub:
    """Return a hub with clusters a (1 core), b (2) and c (3) of a set of the namespace `shop`, and a Placement."""
    made = Hub(["policy-scheduler"])
    made.replace_clusters([*members] or [member(name, cpu=str(at)) for at, name in enumerate("abc", 1)], NOW)
    made.replace_sets([cluster_set()], NOW)
    made.replace_bindings([set_binding()], NOW)
    made.replace_decisions(decisions, NOW)
    made.replace_placements([asks or placement()], NOW)
    made.use(lambda fleet: {}, by_policy(policy) if policy is not None else place, NOW)
    return made


def decided(made: Hub, *, at: float = 0.0) -> Decided:
    found = made.decided(("shop", "web"), WALL + at)
    assert found is not None
    return found


def said(found: Decided) -> dict[str, tuple[str, str, str]]:
    """Return status, reason and message of the conditions."""
    return {each.type.removeprefix("Placement"): (each.status, each.reason, each.message)
            for each in found.status.conditions or ()}  # fmt: skip


def test_without_a_policy_and_a_number_all_clusters_of_the_sets_are_selected() -> None:
    found = decided(hub(member("a"), member("b"), member("other", cluster_set="elsewhere")))
    assert found.chosen == ("a", "b")
    (made,) = found.objects
    assert (made.name, made.clusters, made.labels("web")) == (
        "web-decision-1",
        ("a", "b"),
        {f"{GROUP}/placement": "web", f"{GROUP}/decision-group-index": "0", f"{GROUP}/decision-group-name": ""},
    )
    assert found.status.number_of_selected_clusters == 2
    assert msgspec.to_builtins(found.status.decision_groups) == [{"decisions": ["web-decision-1"], "clusterCount": 2}]
    assert said(found) == {
        "Satisfied": ("True", "AllDecisionsScheduled", "All cluster decisions scheduled"),
        "Misconfigured": ("False", "Succeedconfigured", "Placement configurations check pass"),
    }
    assert {each.last_transition_time for each in found.status.conditions or ()} == {rfc3339(WALL)}


def test_the_policy_scores_and_the_placement_says_how_many() -> None:
    asks = placement(numberOfClusters=2)
    assert decided(hub(policy=MOST_CPU, asks=asks)).chosen == ("b", "c")
    chooses = f"{MOST_CPU}choose 1 clusters\n"
    assert decided(hub(policy=chooses)).chosen == ("c",)
    assert decided(hub(policy=chooses, asks=asks)).chosen == ("c",)
    both = hub(policy=f"{MOST_CPU}choose 3 clusters\n", asks=asks)
    assert decided(both).chosen == ("b", "c")
    spread = hub(policy=f"{MOST_CPU}choose 2 clusters over region at least 2\n")
    assert "Satisfied" in said(decided(spread))


def test_what_is_selected_stays_though_another_is_better_now() -> None:
    asks = placement(numberOfClusters=1)
    kept = hub(policy=MOST_CPU, asks=asks, decisions=(decision("a"),))
    found = decided(kept)
    assert (found.chosen, found.objects) == (("a",), ())
    replaced = hub(policy=f"{MOST_CPU}keep nothing\n", asks=asks, decisions=(decision("a"),))
    assert decided(replaced).chosen == ("c",)
    assert decided(hub(asks=asks, decisions=(decision("b"),))).chosen == ("b",)
    assert decided(hub(policy=f"{MOST_CPU}choose 1 clusters\n", decisions=(decision("a"),))).chosen == ("a",)


def test_a_filter_of_the_policy_ends_nothing_unless_it_says_so() -> None:
    text = f'{MOST_CPU}filter cluster.name != "a"\n'
    assert decided(hub(policy=text, decisions=(decision("a"),))).chosen == ("a", "b", "c")
    assert decided(hub(policy=text)).chosen == ("b", "c")
    strict = text.replace('!= "a"', '!= "a" also running')
    assert decided(hub(policy=strict, decisions=(decision("a"),))).chosen == ("b", "c")
    nowhere = hub(policy=f'{MOST_CPU}filter cluster.name == "none"\n', decisions=())
    found = decided(nowhere)
    assert (found.objects, found.outcome.placed) == ((), False)
    assert said(found)["Satisfied"][:2] == ("False", "NotAllDecisionsScheduled")


def claims(key: str, operator: str, *values: str) -> dict[str, Any]:
    test = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
    return {"claimSelector": {"matchExpressions": [test]}}


OF_X = {"labelSelector": {"matchLabels": {"tier": "x"}}}
WITHOUT_TIER = {"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}}


@pytest.mark.parametrize(
    ("predicate", "chosen"),
    [
        (OF_X, ("a",)),
        (WITHOUT_TIER, ("b",)),
        (claims("region.open-cluster-management.io", "In", "eu-west-1"), ("a", "b")),
        (claims("gpu", "Exists"), ()),
        (OF_X | claims("gpu", "Exists"), ()),
        ({}, ("a", "b")),
    ],
)
def test_predicates_say_which_clusters_are_candidates(predicate: dict[str, Any], chosen: tuple[str, ...]) -> None:
    asks = placement(predicates=[{"requiredClusterSelector": predicate}])
    assert decided(hub(member("a", tier="x"), member("b"), asks=asks)).chosen == chosen


def test_any_of_several_predicates_is_enough_and_none_matching_empties_the_decision() -> None:
    ones = [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"tier": value}}}} for value in "xy"]
    clusters = member("a", tier="x"), member("b", tier="y"), member("c")
    assert decided(hub(*clusters, asks=placement(predicates=ones))).chosen == ("a", "b")
    none = decided(hub(member("c"), asks=placement(predicates=ones), decisions=(decision("c"),)))
    (made,) = none.objects
    assert (made.clusters, none.status.number_of_selected_clusters) == ((), 0)
    assert said(none)["Satisfied"][1] == "NoManagedClusterMatched"


TAINTED: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "NoSelect": ({}, False, False),
    "NoSelectIfNew": ({}, False, True),
    "PreferNoSelect": ({}, True, True),
    "tolerated": ({"key": "gpu", "operator": "Exists"}, True, True),
    "tolerated by value": ({"key": "gpu", "operator": "Equal", "value": "h100"}, True, True),
    "another value": ({"key": "gpu", "operator": "Equal", "value": "a100"}, False, False),
    "for a time": ({"operator": "Exists", "tolerationSeconds": 61}, True, True),
    "for a time that is over": ({"operator": "Exists", "tolerationSeconds": 60}, False, False),
}


@pytest.mark.parametrize("case", TAINTED)
def test_taints_keep_a_placement_away_unless_it_tolerates_them(case: str) -> None:
    toleration, if_new, if_there = TAINTED[case]
    effect = case if case in ("NoSelectIfNew", "PreferNoSelect") else "NoSelect"
    taint = {"key": "gpu", "value": "h100", "effect": effect, "timeAdded": rfc3339(WALL)}
    asks = placement(tolerations=[toleration] if toleration else [])
    for there, selected in ((False, if_new), (True, if_there)):
        made = hub(member("a", taints=[taint]), asks=asks, decisions=(decision("a"),) if there else ())
        assert decided(made, at=60.0).chosen == (("a",) if selected else ())


def test_a_placement_is_decided_again_when_a_toleration_ends() -> None:
    taint = {"key": "gpu", "value": "h100", "effect": "NoSelect", "timeAdded": rfc3339(WALL)}
    asks = placement(tolerations=[{"operator": "Exists", "tolerationSeconds": 400}])
    made = hub(member("a", taints=[taint]), member("b"), asks=asks, decisions=(decision("a", "b"),))
    while (work := next_of(made)) is not None:
        assert work.chosen == ("a", "b")
        made.done(work, NOW, [placement(version="12", status=msgspec.to_builtins(work.status))])
    assert next_of(made, at=399.0) is None
    ended = next_of(made, at=401.0)
    assert ended is not None
    assert (ended.chosen, ended.again_seconds) == (("b",), None)


def test_why_there_are_no_candidates() -> None:
    made = hub(member("a", cluster_set="other"))
    assert said(decided(made))["Satisfied"][1:] == (
        "AllManagedClusterSetsEmpty",
        "All ManagedClusterSets [global] have no member ManagedCluster",
    )
    made = hub(asks=placement(clusterSets=["mine"]), decisions=(decision("a"),))
    found = decided(made)
    assert (found.chosen, said(found)["Satisfied"][1]) == ((), "NoIntersection")
    made.delete_binding(set_binding(), NOW)
    assert said(decided(made))["Satisfied"][1] == "NoManagedClusterSetBindings"


def test_the_names_of_many_sets_are_shortened() -> None:
    found = decided(hub(asks=placement(clusterSets=[f"set-{number}" for number in range(20_000)])))
    (text,) = (each[2] for name, each in said(found).items() if name == "Satisfied")
    assert text.startswith("None of ManagedClusterSets [set-0,set-1,")
    assert len(text) < 1_100


def test_the_message_of_a_condition_is_cut_off_where_the_api_does() -> None:
    assert len(condition("PlacementSatisfied", holds=False, reason="Why", message="x" * 40_000).message) == 32_768


def test_a_set_may_select_by_labels() -> None:
    made = hub(member("a", cluster_set="x", tier="gold"), member("b"))
    selects = cluster_set("tiers", selectorType="LabelSelector", labelSelector={"matchLabels": {"tier": "gold"}})
    made.set_set(selects, NOW)
    made.set_binding(set_binding("tiers"), NOW)
    made.set_placement(placement(version="11", clusterSets=["tiers"]), NOW)
    assert decided(made).chosen == ("a",)


def test_too_few_clusters_are_all_selected_and_the_condition_says_so() -> None:
    found = decided(hub(asks=placement(numberOfClusters=5)))
    assert (found.chosen, said(found)["Satisfied"]) == (
        ("a", "b", "c"),
        ("False", "NotAllDecisionsScheduled", "2 cluster decisions unscheduled"),
    )


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"predicates": [{"requiredClusterSelector": {"celSelector": {"celExpressions": ["true"]}}}]},
            "celSelector is not supported: write a `filter` in the policy instead",
        ),
        (
            {"predicates": [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"a b": ""}}}}]},
            "a selector cannot be read",
        ),
        ({"tolerations": [{"operator": "Near"}]}, "a toleration has the operator 'Near'; expected Equal or Exists"),
        (
            {"decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": "some"}}},
            "clustersPerDecisionGroup is 'some'; expected a number above 0 or a share such as 25%",
        ),
    ],
)
def test_what_cannot_be_read_changes_no_decision(spec: dict[str, Any], why: str) -> None:
    found = decided(hub(asks=placement(**spec), decisions=(decision("a"),)))
    assert (found.objects, found.superfluous, found.chosen) == ((), (), ("a",))
    assert said(found)["Misconfigured"][:2] == ("True", "Misconfigured")
    assert said(found)["Misconfigured"][2].startswith(why)


def test_decisions_come_in_groups_by_name_and_size() -> None:
    groups = [{"groupName": "canary", "groupClusterSelector": {"labelSelector": {"matchLabels": {"tier": "x"}}}}]
    strategy = {"groupStrategy": {"decisionGroups": groups, "clustersPerDecisionGroup": "50%"}}
    found = decided(
        hub(member("a"), member("b", tier="x"), member("c"), member("d"), asks=placement(decisionStrategy=strategy))
    )
    assert [(each.group_name, each.group_index, each.clusters) for each in found.objects] == [
        ("canary", 0, ("b",)),
        ("", 1, ("a", "c")),
        ("", 2, ("d",)),
    ]


def test_only_placements_that_name_this_scheduler_are_decided() -> None:
    made = Hub(["policy-scheduler"])
    others = (
        {},
        {f"{GROUP}/experimental-scheduling-disable": "true"},
        {"policy-scheduler/scheduler-name": "policy-scheduler"},
        OURS | {"policy-scheduler/scheduler-name": "ramen"},
    )
    for each in others:
        made.set_placement(placement(annotations=each), NOW)
        assert made.next(NOW, WALL) is None
    made.set_placement(placement(version="11"), NOW)
    assert isinstance(made.next(NOW, WALL), Decided)
    made.set_placement(placement(version="12", annotations={}), NOW)
    assert made.decided(("shop", "web"), WALL) is None
    assert len(made.waiting) == 0


def test_decisions_of_an_earlier_placement_of_the_name_are_not_its_own() -> None:
    old = decision("a", owner="old")
    made = hub(policy=MOST_CPU, asks=placement(numberOfClusters=1), decisions=(old,))
    found = decided(made)
    assert (found.objects, found.before, dict(found.known)) == ((), [], {}), "a name that is taken cannot be written"
    taken = (
        "PlacementDecision web-decision-1 is owned by another object (Placement web): "
        "delete it, or rename the Placement"
    )
    assert said(found)["Satisfied"] == ("False", "NotAllDecisionsScheduled", taken)
    assert not found.outcome.placed
    while (work := made.next(NOW, WALL)) is not None:
        made.done(work, NOW)
    made.delete_decision(old, Steady(NOW + 1))
    again = next_of(made, at=1)
    assert again is not None, "it is decided as soon as the name is free"
    assert (again.chosen, [each.name for each in again.objects]) == (("c",), ["web-decision-1"])


def test_a_decision_of_nobody_and_one_of_another_placement_take_a_name_too() -> None:
    stray = msgspec.structs.replace(decision("a").metadata, labels=None, owner_references=None)
    nobodys = PlacementDecision(metadata=stray)
    assert "is not of this Placement" in decided(hub(decisions=(nobodys,))).outcome.message
    others = PlacementDecision(metadata=msgspec.structs.replace(stray, labels={f"{GROUP}/placement": "api"}))
    assert "is not of this Placement" in decided(hub(decisions=(others,))).outcome.message
    made = hub()
    assert [each.name for each in decided(made).objects] == ["web-decision-1"]
    made.set_decision(nobodys, NOW)
    assert not decided(made).objects
    made.set_decision(decision("a", "b", "c", version="11"), NOW)
    assert (decided(made).objects, decided(made).before) == ((), ["a", "b", "c"])


def next_of(made: Hub, *, at: float = 0.0) -> Decided | None:
    while (found := made.next(Steady(NOW + at), WALL + at)) is not None:
        if isinstance(found, Decided):
            return found
        made.done(found, Steady(NOW + at))
    return None


def test_what_is_as_it_should_be_is_not_written_and_what_others_change_is_decided_again() -> None:
    made = hub()
    first = next_of(made)
    assert first is not None
    assert first.writes
    stored = placement(version="12", status=msgspec.to_builtins(first.status))
    made.done(first, NOW, [decision("a", "b", "c", version="11"), stored])
    made.set_placement(stored, NOW)
    made.set_decision(decision("a", "b", "c", version="11"), NOW)
    assert next_of(made) is None
    assert not decided(made).writes
    made.set_decision(decision("a", version="13"), NOW)
    again = next_of(made)
    assert again is not None
    assert [each.clusters for each in again.objects] == [("a", "b", "c")]
    made.conflicted(again, NOW)
    assert made.tallies.conflicts == 1
    made.set_decision(decision("a", "b", version="12"), NOW)
    assert decided(made).before == ["a"], "older than what is known"
    made.delete_decision(decision("a", version="14"), NOW)
    assert decided(made).before == []


def test_what_goes_while_it_is_written_is_not_taken_for_there() -> None:
    made = hub()
    work = next_of(made)
    assert work is not None
    written = decision("a", "b", "c", version="11")
    made.set_decision(written, NOW)
    made.delete_decision(decision("a", "b", "c", version="12"), NOW)
    made.done(work, NOW, [written])
    again = next_of(made)
    assert again is not None
    assert [each.name for each in again.objects] == ["web-decision-1"]
    made.set_placement(placement(version="13", annotations={}), NOW)
    made.done(again, NOW, [decision("a", version="14"), placement(version="12")])
    assert made.decided(("shop", "web"), WALL) is None


def relabelled(written: PlacementDecision, **head: Any) -> PlacementDecision:
    meta = msgspec.structs.replace(written.metadata, **head)
    return msgspec.structs.replace(written, metadata=meta)


def test_a_decision_whose_label_somebody_takes_away_gets_it_again() -> None:
    made = hub(decisions=(decision("a", "b", "c"),))
    assert decided(made).objects == ()
    made.set_decision(relabelled(decision("a", "b", "c"), labels={}, resource_version="11"), NOW)
    found = decided(made)
    assert [each.name for each in found.objects] == ["web-decision-1"]
    assert found.known["web-decision-1"].metadata.resource_version == "11", "it is changed, not made once more"


@pytest.mark.parametrize("labels", [{}, {f"{GROUP}/placement": "other"}])
def test_a_decision_that_somebody_gives_away_is_nobodys_or_anothers(labels: dict[str, str]) -> None:
    made = hub(decisions=(decision("a", "b", "c"),))
    while (work := next_of(made)) is not None:
        made.done(work, NOW)
    given_away = relabelled(decision("a", "b", "c"), labels=labels, owner_references=[], resource_version="11")
    made.set_decision(given_away, NOW)
    work = next_of(made)
    assert work is not None
    assert (work.before, dict(work.known)) == ([], {})
    made.delete_decision(given_away, NOW)
    made.set_decision(decision("a", "b", "c", version="12"), NOW)
    assert decided(made).before == ["a", "b", "c"]


def test_a_status_without_groups_is_written_once() -> None:
    wrong: dict[str, Any] = {"tolerations": [{"operator": "Near"}]}
    found = decided(hub(asks=placement(**wrong)))
    assert found.writes
    written = msgspec.to_builtins(found.status) | {"decisionGroups": []}
    assert not decided(hub(asks=placement(**wrong, status=written))).writes


def test_a_change_of_a_cluster_a_set_or_a_binding_wakes_its_placements() -> None:
    made = hub(policy=MOST_CPU)
    changes = [
        lambda: made.set_cluster(member("d"), NOW),
        lambda: made.delete_cluster("d", NOW),
        lambda: made.set_cluster(member("a", tier="x"), NOW),
        lambda: made.set_set(cluster_set(selectorType="LabelSelector", labelSelector={}), NOW),
        lambda: made.delete_set("global", NOW),
        lambda: made.set_binding(set_binding("more"), NOW),
        lambda: made.delete_binding(set_binding("more"), NOW),
    ]
    for change in changes:
        for _ in range(2):
            if (work := next_of(made)) is not None:
                made.waiting.settled(work.key, NOW)
        change()
        assert next_of(made) is not None
        made.waiting.settled(("shop", "web"), NOW)


NAMES = st.lists(st.sampled_from([f"c{number}" for number in range(9)]), unique=True)


@given(NAMES, NAMES, st.none() | st.integers(0, 12), st.booleans())
def test_decisions_are_bounded_stable_and_only_of_what_is_there(
    there: list[str], had: list[str], most: int | None, scores: bool
) -> None:
    """Whatever is decided: no more than asked for, only clusters that are there; and the same if asked again."""
    clusters = [member(name, cpu=str(at + 1)) for at, name in enumerate(there)]
    asks = placement(**({"numberOfClusters": most} if most is not None else {}))
    if not clusters:
        return
    made = hub(*clusters, policy=MOST_CPU if scores else None, asks=asks, decisions=(decision(*had),) if had else ())
    chosen = decided(made).chosen
    assert set(chosen) <= set(there)
    assert len(chosen) == (min(len(there), most) if most is not None else len(there))
    assert len(set(had) & set(there) - set(chosen)) == max(0, len(set(had) & set(there)) - len(chosen))
    made.replace_decisions((decision(*chosen),), NOW)
    assert decided(made).chosen == chosen


@given(st.integers(0, 450), st.none() | st.integers(1, 500) | st.integers(1, 100).map(lambda each: f"{each}%"))
def test_every_cluster_is_in_one_group_and_no_object_is_too_long(count: int, size: int | str | None) -> None:
    names = [f"c{number:03}" for number in range(count)]
    strategy = {"groupStrategy": {"clustersPerDecisionGroup": size}} if size is not None else {}
    groups = groups_of(placement(decisionStrategy=strategy), names, {})
    objects = objects_of("web", groups)
    assert [name for each in objects for name in each.clusters] == names
    assert all(len(each.clusters) <= MOST_DECISIONS for each in objects)
    assert [each.name for each in objects] == [f"web-decision-{number}" for number in range(1, len(objects) + 1)]
    assert {each.group_index for each in objects} == set(range(len(groups)))


@pytest.mark.parametrize("size", [0, -1, "0%", "999999999999", "-5", "1.5%", "²", "9" * 5000])
def test_a_size_of_groups_that_is_none_is_an_error(size: int | str) -> None:
    strategy = {"groupStrategy": {"clustersPerDecisionGroup": size}}
    if size == "999999999999":
        assert len(groups_of(placement(decisionStrategy=strategy), ["a"], {})) == 1
        return
    with pytest.raises(MisconfiguredError, match="expected a number above 0 or a share"):
        groups_of(placement(decisionStrategy=strategy), ["a"], {})


def test_the_labels_of_the_sets_are_those_of_the_clusters() -> None:
    assert IN_GLOBAL.items() <= (member("a").metadata.labels or {}).items()
