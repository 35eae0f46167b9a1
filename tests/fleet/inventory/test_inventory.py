"""Which ClusterProfiles a policy chooses, and what is written; no I/O."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.cluster_profile import ClusterProfile, profile_cluster
from kube_policy_scheduler.fleet.inventory.inventory import CHOSEN, MOST_CHOICES, Choice, Inventory
from kube_policy_scheduler.fleet.inventory.objects import ProfileDecision
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.times import Steady

NOW = Steady(1000.0)
HERE = "cluster-inventory"
PRICES = {"a": "3", "b": "1", "c": "2"}
CHEAPEST = (
    'for workloads where workload.kind == "PlacementDecision"\nscore -(cluster.price ?? 9)\nchoose 1 to 2 clusters\n'
)


def profile(
    name: str, *, namespace: str = HERE, healthy: str | None = "True", price: str | None = None, **properties: str
) -> ClusterProfile:
    conditions = [{"type": "ControlPlaneHealthy", "status": healthy, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    made = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"policy-scheduler/hourly-price": price} if price is not None else {},
        },
        "status": {
            "version": {"kubernetes": "v1.36.2"},
            "conditions": conditions if healthy is not None else [],
            "properties": [{"name": key, "value": value} for key, value in properties.items()],
        },
    }
    return msgspec.convert(made, ClusterProfile)


def decision(
    *names: str, policy: str = "cheapest", number: int = 1, version: str = "10", **more: Any
) -> ProfileDecision:
    labels = {
        "multicluster.x-k8s.io/decision-key": policy,
        "multicluster.x-k8s.io/decision-index": str(number - 1),
    }
    made = {
        "metadata": {
            "name": f"{policy}-decision-{number}", "namespace": HERE, "uid": f"{policy}-{number}",
            "resourceVersion": version, "labels": labels,
        },
        "schedulerName": "policy-scheduler",
        "decisions": [{"clusterProfileRef": {"name": name, "namespace": HERE}} for name in names],
    }  # fmt: skip
    return msgspec.convert(made | more, ProfileDecision)


def use(made: Inventory, now: Steady = NOW, **texts: str) -> Inventory:
    loaded = load([Source(f"{name}.policy", text) for name, text in texts.items()])
    assert loaded.policy_set is not None, loaded.diagnostics
    policies = loaded.policy_set.fleet
    made.use(policies.names_of(CHOSEN), lambda asked, fleet: policies.decide_by_name(asked, fleet, Given()), now)
    return made


def inventory(*decisions: ProfileDecision, **texts: str) -> Inventory:
    made = Inventory(HERE, "policy-scheduler")
    made.replace_profiles([profile(name, price=price) for name, price in PRICES.items()], NOW)
    made.replace_decisions(decisions, NOW)
    return use(made, **(texts or {"cheapest": CHEAPEST}))


def choice(made: Inventory, name: str = "cheapest") -> Choice:
    found = made.choice(name)
    assert found is not None
    return found


def test_each_policy_chooses_by_its_own_name_and_the_best_come_first() -> None:
    all_of_them = CHEAPEST.replace("choose 1 to 2 clusters\n", "")
    made = inventory(cheapest=CHEAPEST, all=all_of_them, others='for workloads where workload.kind == "Job"\nscore 1\n')
    assert (choice(made).chosen, choice(made, "all").chosen) == (("b", "c"), ("b", "c", "a"))
    assert made.choice("others") is None
    (one,) = choice(made).slices
    assert (one.name, one.clusters) == ("cheapest-decision-1", ("b", "c"))
    assert one.labels("cheapest") == {
        "multicluster.x-k8s.io/decision-key": "cheapest",
        "multicluster.x-k8s.io/decision-index": "0",
    }


def test_what_is_chosen_stays_though_another_is_better_now() -> None:
    kept = inventory(decision("a", "c"))
    assert (choice(kept).chosen, choice(kept).writes) == (("c", "a"), False)
    assert choice(inventory(decision("a"))).chosen == ("b", "a")
    assert choice(inventory(decision("a", "c"), cheapest=f"{CHEAPEST}keep nothing\n")).chosen == ("b", "c")
    assert choice(inventory(decision("c", "b"))).writes is False, "another order alone"


def test_a_filter_ends_nothing_and_a_cluster_that_is_gone_is_replaced() -> None:
    rejects = f'{CHEAPEST}filter cluster.name == "none"\n'
    found = choice(inventory(decision("a", "gone"), cheapest=rejects))
    assert (found.chosen, [each.clusters for each in found.slices]) == (("a",), [("a",)])
    nowhere = choice(inventory(cheapest=rejects))
    assert (nowhere.chosen, nowhere.outcome.placed) == ((), False)
    made = inventory(decision("a", "b"))
    made.delete_profile(profile("b"), NOW)
    assert choice(made).chosen == ("c", "a")
    assert [each.clusters for each in choice(made).slices] == [("c", "a")]


def test_a_cluster_that_is_not_healthy_is_not_chosen_anew() -> None:
    made = inventory(decision("b"))
    made.set_profile(profile("b", healthy="Unknown", price="1"), NOW)
    assert choice(made).chosen == ("b", "c")
    made.replace_decisions((), NOW)
    assert choice(made).chosen == ("c", "a")
    assert "control-plane-unhealthy" in choice(made).outcome.verdicts["b"].message


def test_what_a_profile_says() -> None:
    row = profile_cluster(
        profile("a", **{"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": "eu-1"})
    )
    assert (row.name, row.region, row.zones, row.version, row.ready) == ("a", "eu", ("eu-1",), "v1.36.2", True)
    assert profile_cluster(profile("a", healthy=None)).taints == ()


def woken(made: Inventory, *, at: float = 0.0) -> set[str]:
    found = set()
    while (work := made.next(Steady(NOW + at))) is not None:
        found.add(work.policy)
        made.done(work, Steady(NOW + at))
    return found


def test_what_changes_wakes_and_what_others_write_is_decided_again() -> None:
    made = inventory()
    assert woken(made) == {"cheapest"}
    made.set_decision(decision("b", "c"), NOW)
    assert woken(made) == {"cheapest"}
    made.set_decision(decision("b", "c"), NOW)
    assert woken(made) == set()
    made.set_decision(decision("a", version="9"), NOW)
    assert woken(made) == set(), "older than what is known"
    made.set_decision(decision("a", policy="theirs", schedulerName="another"), NOW)
    made.set_profile(profile("d", namespace="elsewhere"), NOW)
    assert woken(made) == set()
    made.delete_decision(decision("b", "c", version="12"), NOW)
    assert choice(made).before == ()
    assert woken(made) == {"cheapest"}
    made.set_profile(profile("d", price="0"), NOW)
    assert woken(made, at=1.0) == {"cheapest"}
    made.look_at_some(NOW)
    assert woken(made, at=3.0) == {"cheapest"}


def test_a_decision_whose_label_somebody_changes_is_written_again() -> None:
    made = inventory(decision("b", "c"))
    assert not choice(made).writes
    changed = decision("b", "c", version="11")
    meta = msgspec.structs.replace(changed.metadata, labels={})
    made.set_decision(msgspec.structs.replace(changed, metadata=meta), NOW)
    assert [each.name for each in choice(made).slices] == ["cheapest-decision-1"]
    assert choice(made).known["cheapest-decision-1"].metadata.resource_version == "11"
    assert woken(made) == {"cheapest"}
    meta = msgspec.structs.replace(changed.metadata, labels=decision(policy="old").metadata.labels)
    made.set_decision(msgspec.structs.replace(changed, metadata=meta), NOW)
    assert choice(made).before == ()
    made.set_decision(decision("b", "c", version="12"), NOW)
    assert not choice(made).writes
    made.set_decision(decision("b", "c", version="13", schedulerName="another"), NOW)
    assert choice(made).before == ()


def test_a_policy_that_is_gone_leaves_what_it_chose() -> None:
    made = inventory(decision("b", "c"), decision("a", policy="old"))
    use(made, other=CHEAPEST)
    assert woken(made) == {"other"}
    assert len(made.waiting) == 1
    assert made.choice("cheapest") is None


def test_writes_that_fail_are_tried_again() -> None:
    made = inventory()
    work = made.next(NOW)
    assert work is not None
    made.refused(work, NOW)
    assert made.next(NOW) is None
    again = made.next(Steady(NOW + 2))
    assert again is not None
    made.conflicted(again, Steady(NOW + 2))
    assert (made.tallies.failed_writes, made.tallies.conflicts, made.waiting.failing) == (1, 1, 1)


def test_only_what_says_the_same_counts_as_written() -> None:
    assert choice(inventory(decision("b", "c", decisions=[{"clusterProfileRef": {"name": "b"}}]))).writes


@pytest.mark.parametrize(
    ("scheduler", "whose"), [("another", "is of the scheduler 'another'"), ("", "names no scheduler")]
)
def test_a_name_that_another_scheduler_has_is_said_and_not_tried_again_and_again(scheduler: str, whose: str) -> None:
    theirs = decision("b", "c", schedulerName=scheduler)
    made = inventory(theirs)
    work = made.next(NOW)
    assert work is not None
    assert not work.writes
    assert work.outcome.message == (
        f"PlacementDecision cheapest-decision-1 {whose}, not of this one: delete it, or rename the policy"
    )
    made.done(work, NOW)
    assert made.tallies.decisions == {"SchedulerError": 1}
    made.set_decision(decision("a", schedulerName=scheduler, version="11"), Steady(NOW + 20))
    assert made.next(Steady(NOW + 100)) is None
    made.delete_decision(theirs, Steady(NOW + 100))
    again = made.next(Steady(NOW + 100))
    assert again is not None
    assert [each.clusters for each in again.slices] == [("b", "c")]


def test_a_decision_that_another_scheduler_takes_over_is_left_to_it() -> None:
    made = inventory(decision("b", "c"))
    assert not choice(made).writes
    made.set_decision(decision("b", "c", schedulerName="another", version="11"), NOW)
    assert (choice(made).writes, choice(made).outcome.placed) == (False, False)
    made.set_decision(decision("b", "c", version="12"), NOW)
    assert (choice(made).writes, choice(made).outcome.placed) == (False, True)


@given(st.integers(0, 250), st.integers(0, 250))
def test_all_clusters_are_in_slices_of_bounded_size(count: int, before: int) -> None:
    made = Inventory(HERE, "policy-scheduler")
    names = [f"c{number:03}" for number in range(count)]
    made.replace_profiles([profile(name) for name in names], NOW)
    had = [f"c{number:03}" for number in range(before)]
    slices = [had[at : at + MOST_CHOICES] for at in range(0, len(had), MOST_CHOICES)]
    made.replace_decisions([decision(*each, policy="all", number=at + 1) for at, each in enumerate(slices)], NOW)
    found = choice(use(made, all="for workloads where true\nkeep running\n"), "all")
    assert set(found.chosen) == set(names)
    written = {each.name: each.clusters for each in found.slices}
    there = {f"all-decision-{at + 1}": tuple(each) for at, each in enumerate(slices)}
    after = {name: each for name, each in (there | written).items() if name not in found.superfluous}
    assert sorted(name for each in after.values() for name in each) == names
    assert all(len(each) <= MOST_CHOICES for each in after.values())
