"""The scores of managed clusters: their values, and when they are written; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Reason, Verdict
from kube_policy_scheduler.fleet.ocm import reading
from kube_policy_scheduler.fleet.ocm.hub import Hub
from kube_policy_scheduler.fleet.ocm.scorer import BEST, LOWEST, SCORED, WORST, Scores, values_of
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.times import Steady
from tests.fleet.ocm.hub import cluster

NOW = Steady(1000.0)


def by_policies(**texts: str) -> Callable[[Fleet], Mapping[str, Outcome]]:
    loaded = load([Source(f"{name}.policy", text) for name, text in texts.items()])
    assert loaded.policy_set is not None, loaded.diagnostics
    policies = loaded.policy_set.fleet
    return lambda fleet: policies.decide_each(SCORED, fleet, Given())


def scorer(*names: str, **texts: str) -> Hub:
    made = Hub(["policy-scheduler"])
    made.replace_clusters([cluster(name, tier=f"tier-{name}", cpu=str(ord(name))) for name in names], NOW)
    if texts:
        made.use(by_policies(**texts), place, NOW)
    return made


def scored(made: Hub, now: Steady) -> Scores | None:
    found = made.next(now, 0.0)
    assert found is None or isinstance(found, Scores)
    return found


def drained(made: Hub, now: Steady) -> dict[str, Mapping[str, int]]:
    found: dict[str, Mapping[str, int]] = {}
    while (work := scored(made, now)) is not None:
        found[work.cluster] = work.values
        made.done(work, now)
    return found


BY_CPU = "for workloads where true\nscore cluster.allocatable.cpu\n"


def test_each_policy_is_a_score_with_its_name() -> None:
    other = 'for workloads where true\nfilter cluster.label.tier != "tier-a"\n'
    made = scorer("a", "b", "c", size=BY_CPU, tiers=other)
    assert drained(made, NOW) == {
        "a": {"size": WORST, "tiers": LOWEST},
        "b": {"size": 50, "tiers": BEST},
        "c": {"size": BEST, "tiers": BEST},
    }


def test_policies_of_other_workloads_are_no_scores() -> None:
    deployments = 'for workloads where workload.kind == "Deployment"\nscore cluster.allocatable.cpu\n'
    assert drained(scorer("a", only=deployments), NOW) == {}
    named = 'for workloads where workload.kind == "AddOnPlacementScore" and workload.name == "mine"\nscore 1\n'
    assert drained(scorer("a", mine=named, yours=named), NOW) == {"a": {"mine": BEST}}


def test_what_a_policy_reads_of_a_managed_cluster() -> None:
    text = (
        'for workloads where true\nfilter cluster.region == "eu-west-1" and cluster.provider == "AWS"\n'
        'filter cluster.ready and "gpu" in cluster.taints and cluster.version == "v1.36.2"\n'
        'filter cluster.label["region.open-cluster-management.io"] == "eu-west-1"\n'
        "filter cluster.allocatable.memory == 64Gi and cluster.free.cpu == 0\n"
    )
    assert drained(scorer("a", all=text), NOW) == {"a": {"all": BEST}}
    assert reading.cluster(cluster("a")).free("cpu") is None


def test_all_are_written_every_minute_and_a_new_one_at_once() -> None:
    made = scorer("a", "b", size=BY_CPU)
    assert set(drained(made, NOW)) == {"a", "b"}
    assert scored(made, Steady(NOW + 59)) is None
    made.set_cluster(cluster("c", cpu="500"), Steady(NOW + 59))
    assert drained(made, Steady(NOW + 59)) == {"c": {"size": BEST}}
    assert drained(made, Steady(NOW + 60)) == {"a": {"size": WORST}, "b": {"size": 0}}


def test_a_cluster_that_changes_gets_its_scores_soon_however_often_it_changes() -> None:
    made = scorer("a", "b", size=BY_CPU)
    assert drained(made, NOW) == {"a": {"size": WORST}, "b": {"size": BEST}}
    written = {}
    for tenth in range(1, 200):
        made.set_cluster(cluster("a", cpu=str(500 + tenth)), Steady(NOW + tenth / 10))
        if found := drained(made, Steady(NOW + tenth / 10)):
            written[tenth] = found
    assert 1 <= len(written) <= 4
    assert min(written) <= 61
    assert all(found == {"a": {"size": BEST}} for found in written.values())
    assert drained(made, Steady(NOW + 61))["b"] == {"size": WORST}


def test_other_policies_are_written_at_once_and_no_policies_write_nothing() -> None:
    made = scorer("a")
    assert scored(made, NOW) is None
    assert made.values("a", NOW) is None
    made.use(by_policies(size=BY_CPU), place, NOW)
    assert drained(made, NOW) == {"a": {"size": BEST}}
    made.use(by_policies(other=BY_CPU), place, NOW)
    assert drained(made, NOW) == {"a": {"other": BEST}}


def test_a_write_that_failed_is_tried_again_and_a_cluster_that_goes_is_left() -> None:
    made = scorer("a", "b", size=BY_CPU)
    first = scored(made, NOW)
    assert first is not None
    made.refused(first, NOW)
    assert set(drained(made, NOW)) == {"a", "b"} - {first.cluster}
    assert set(drained(made, Steady(NOW + 2))) == {first.cluster}
    made.delete_cluster("a", NOW)
    assert set(drained(made, Steady(NOW + 100))) == {"b"}


SCORES = st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.text(max_size=3), st.tuples(SCORES, st.booleans()), max_size=6))
def test_values_are_whole_bounded_and_in_the_order_of_the_scores(said: dict[str, tuple[float, bool]]) -> None:
    verdicts = {
        name: Verdict(score=score, rejected_by="filter" if rejected else "") for name, (score, rejected) in said.items()
    }
    values = values_of(Outcome(Reason.SUCCESS, "", verdicts=verdicts))
    passing = sorted((score, values[name]) for name, (score, rejected) in said.items() if not rejected)
    assert all(values[name] == LOWEST for name, (_, rejected) in said.items() if rejected)
    assert [value for _, value in passing] == sorted(value for _, value in passing)
    assert all(WORST <= value <= BEST for _, value in passing)
    if passing:
        assert passing[-1][1] == BEST


@pytest.mark.parametrize("text", ["for workloads where true\nchoose 9 to 9 clusters\nscore cluster.allocatable.cpu\n"])
def test_a_policy_that_cannot_place_scores_all_the_same(text: str) -> None:
    assert drained(scorer("a", "b", many=text), NOW) == {"a": {"many": WORST}, "b": {"many": BEST}}
