"""Who is nominated to which worker clusters, and when; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.fleet.multikueue import reading
from kube_policy_scheduler.fleet.multikueue.nominating import Decide, fleet_of, nominate
from kube_policy_scheduler.fleet.multikueue.nominator import Nomination, Nominator
from kube_policy_scheduler.fleet.multikueue.objects import KueueWorkload
from kube_policy_scheduler.fleet.multikueue.writes import MOST_NOMINATED
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.times import Steady
from tests.fleet.multikueue.kueue import WALL, by_policy, check, cluster, config, profile, workload

NOW = Steady(1000.0)
KEY = ("team", "job-train")
CHEAPEST = """\
for workloads where workload.kind == "Job"
filter cluster.label.gpu == "h100"
score 3 if cluster.name == "c"
score 2 if cluster.name == "a"
choose 1 to 1 clusters
"""


def nominator(decide: Decide = place, *, clusters: Sequence[Any] = (), **work: Any) -> Nominator:
    made = Nominator(decide, round_seconds=300.0)
    made.replace_clusters([*clusters] or [cluster(name, gpu="h100") for name in "abcd"], NOW)
    made.replace_configs([config("a", "b", "c", "d")], NOW)
    made.replace_checks([check(), check("budget", "team.io/budget")], NOW)
    made.replace_workloads([workload(**work)], NOW)
    return made


def next_of(made: Nominator, *, at: float = 0.0) -> Nomination:
    found = made.next(Steady(NOW + at), WALL + at)
    assert found is not None
    return found


def test_without_policies_all_clusters_that_are_connected_are_nominated() -> None:
    made = nominator(clusters=[cluster("a"), cluster("b", active="False"), cluster("c"), cluster("unasked")])
    found = next_of(made)
    assert (found.key, found.names, found.writes) == (KEY, ["a", "c"], True)
    assert "kueue.x-k8s.io/inactive" in found.outcome.verdicts["b"].message


def test_the_policy_chooses_and_its_scores_are_the_order() -> None:
    assert next_of(nominator(by_policy(CHEAPEST))).names == ["c"]
    three = CHEAPEST.replace("1 to 1", "1 to 3").replace("filter", "#")
    assert next_of(nominator(by_policy(three))).names[:2] == ["c", "a"]


def test_a_division_does_not_matter_as_each_cluster_runs_all_of_it() -> None:
    divided = CHEAPEST + "divide best first\n"
    assert next_of(nominator(by_policy(divided))).names == ["c"]


def test_round_by_round_the_next_best_are_nominated_too() -> None:
    made = nominator(by_policy(CHEAPEST), nominated=["c"])
    first = next_of(made)
    assert (first.names, first.writes, first.again_seconds) == (["c"], False, 300.0)
    made.done(first, NOW)
    assert made.next(Steady(NOW + 299), WALL + 299) is None
    second = next_of(made, at=300.5)
    assert (list(second.names), second.writes, second.again_seconds) == (["c", "a"], True, 299.5)
    made.done(second, Steady(NOW + 301), workload(nominated=["c", "a"]))
    # a new process knows the round by the time of the reservation
    again = nominator(by_policy(CHEAPEST), nominated=["c", "a"])
    assert next_of(again, at=650).names[:2] == ["c", "a"]
    assert len(next_of(nominator(by_policy(CHEAPEST)), at=1e9).names) == 4


def test_what_is_nominated_stays_though_another_is_better_now() -> None:
    made = nominator(by_policy(CHEAPEST), nominated=["b"])
    assert not next_of(made).writes
    nothing_kept = nominator(by_policy(CHEAPEST + "keep nothing\n"), nominated=["b"])
    assert next_of(nothing_kept).names == ["c"]


def test_a_cluster_that_is_lost_or_not_allowed_any_more_is_replaced_at_once() -> None:
    lost = [cluster("a", gpu="h100"), cluster("c", gpu="h100", active="Unknown")]
    assert next_of(nominator(by_policy(CHEAPEST), clusters=lost, nominated=["c"])).names == ["a"]
    assert next_of(nominator(by_policy(CHEAPEST), nominated=["elsewhere"])).names == ["c"]


def test_a_filter_takes_back_a_nomination_only_if_it_says_so() -> None:
    old = [cluster("a", gpu="h100"), cluster("c", gpu="a100")]
    assert not next_of(nominator(by_policy(CHEAPEST), clusters=old, nominated=["c"])).writes
    strict = CHEAPEST.replace('"h100"\n', '"h100" also running\n')
    assert next_of(nominator(by_policy(strict), clusters=old, nominated=["c"])).names == ["a"]


def test_without_an_answer_nothing_is_taken_back_and_it_is_tried_again() -> None:
    many = CHEAPEST.replace("1 to 1", "5 to 5")
    made = nominator(by_policy(many), nominated=["a"])
    found = next_of(made)
    assert (found.writes, found.outcome.placed) == (False, False)
    made.done(found, NOW)
    assert made.waiting.failing == 1
    made.set_cluster(cluster("d", gpu="h100", zone="z"), NOW)
    assert made.next(Steady(NOW + 1.1), WALL) is not None


@pytest.mark.parametrize(
    "given_status",
    [
        {"clusterName": "a"},
        {"conditions": [{"type": "QuotaReserved", "status": "False"}]},
        {"conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "Finished", "status": "True"}]},
        {"admissionChecks": [{"name": "far", "state": "Ready"}]},
        {"admissionChecks": [{"name": "far", "state": "Pending"}, {"name": "budget", "state": "Pending"}]},
        {"admissionChecks": [{"name": "far", "state": "Pending"}, {"name": "unknown", "state": "Retry"}]},
        {"admissionChecks": []},
    ],
)
def test_only_who_has_a_quota_and_no_cluster_is_nominated(given_status: dict[str, Any]) -> None:
    made = nominator(**given_status)
    assert made.next(NOW, WALL) is None
    assert len(made.waiting) == 0
    made.set_workload(workload(), NOW)
    assert next_of(made).names == ["a", "b", "c", "d"]


def test_another_check_that_is_ready_does_not_matter() -> None:
    ready = [{"name": "budget", "state": "Ready"}, {"name": "far", "state": "Pending"}]
    assert next_of(nominator(admissionChecks=ready)).writes


def test_nothing_is_done_before_the_configuration_is_there() -> None:
    made = nominator(nominated=["a"])
    made.delete_config("far")
    assert made.next(NOW, WALL) is None
    made.set_config(config("b"), NOW)
    assert next_of(made).names == ["b"]


def test_what_changes_wakes_and_a_conflict_is_decided_again() -> None:
    made = nominator()
    first = next_of(made)
    made.conflicted(first, NOW)
    assert made.next(NOW, WALL) is None
    again = next_of(made, at=2.0)
    made.done(again, NOW, workload(nominated=["a", "b", "c", "d"]))
    assert made.tallies.conflicts == 1
    made.delete_cluster("a", Steady(NOW + 3))
    assert next_of(made, at=3.0).names == ["b", "c", "d"]
    made.delete_workload(KEY)
    assert made.next(Steady(NOW + 1e6), WALL) is None


def settled_pair() -> Nominator:
    """Return one that has nominated two Workloads: `train` to the clusters of `far`, `serve` to those of `near`."""
    made = nominator(clusters=[cluster(name) for name in "abcd"])
    made.replace_configs([config("a", "b"), config("c", "b", name="near")], NOW)
    made.replace_checks([check(), check("near", points_to="near")], NOW)
    near = [{"name": "near", "state": "Pending"}]
    made.replace_workloads([workload("train"), workload("serve", admissionChecks=near)], NOW)
    woken(made)
    return made


def woken(made: Nominator, *, at: float = 0.0) -> set[str]:
    """Return which Workloads are decided now; they are nominated so."""
    found = set()
    while (work := made.next(Steady(NOW + at), WALL + at)) is not None:
        found.add(work.key[1].removeprefix("job-"))
        made.waiting.settled(work.key, Steady(NOW + at))
    return found


CHANGES: dict[str, tuple[Callable[[Nominator], None], set[str]]] = {
    "a cluster of one": (lambda made: made.set_cluster(cluster("a", gpu="h100"), NOW), {"train"}),
    "a cluster of both": (lambda made: made.set_cluster(cluster("b", active="False"), NOW), {"train", "serve"}),
    "a cluster of none": (lambda made: made.set_cluster(cluster("d", gpu="h100"), NOW), set()),
    "a cluster is gone": (lambda made: made.delete_cluster("c", NOW), {"serve"}),
    "all clusters, listed again": (lambda made: made.replace_clusters([cluster(n) for n in "abd"], NOW), {"serve"}),
    "a configuration": (lambda made: made.set_config(config("b", "d", name="near"), NOW), {"serve"}),
    "a configuration, the same": (lambda made: made.set_config(config("a", "b"), NOW), set()),
    "configurations, listed again": (
        lambda made: made.replace_configs([config("a"), config("c", "b", name="near")], NOW),
        {"train"},
    ),
    "a check": (lambda made: made.set_check(check("near", points_to="far"), NOW), {"serve"}),
    "a check, the same": (lambda made: made.set_check(check(), NOW), set()),
    "checks, listed again": (lambda made: made.replace_checks([check()], NOW), set()),
    "other rules": (lambda made: made.use(place, NOW), {"train", "serve"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_the_workloads_that_a_change_concerns_are_decided_again(change: str) -> None:
    made, (apply, concerned) = settled_pair(), CHANGES[change]
    apply(made)
    assert woken(made) == concerned


def test_a_check_that_is_not_one_of_multikueue_any_more_ends_the_wait() -> None:
    made = settled_pair()
    made.set_check(check("near", "team.io/budget"), NOW)
    assert len(made.waiting) == 1
    made.set_check(check("near", points_to="far"), NOW)
    assert woken(made) == {"serve"}
    made.set_config(config("a", "d"), NOW)
    assert woken(made) == {"train", "serve"}


def test_what_a_policy_reads_of_a_workload() -> None:
    text = (
        'for workloads where workload.kind == "Job" and workload.name == "train" and workload.replicas == 4\n'
        'filter workload.label["kueue.x-k8s.io/queue-name"] == "users" and workload.label.tier == "batch"\n'
        "filter workload.priority == 7 and workload.request.cpu == 0.5 and workload.request.memory == 1Gi\n"
        'filter cluster.ready and cluster.label.gpu == "h100"\n'
    )
    assert len(next_of(nominator(by_policy(text))).names) == 4


FREE_OF_CARBON = """\
for workloads where workload.kind == "Job"
filter cluster.label.power == "water" and cluster.label.from == "profile" and cluster.version == "v1.36.2"
filter cluster.conditions.ControlPlaneHealthy and cluster.ready
"""


def test_what_a_profile_says_of_a_cluster_counts_as_if_the_cluster_said_it() -> None:
    made = nominator(by_policy(FREE_OF_CARBON), clusters=[cluster("a", profile="p"), cluster("b"), cluster("c")])
    assert next_of(made).names == []
    made.waiting.settled(KEY, NOW)
    made.set_profile(profile("p", namespace="elsewhere", power="water"), NOW)
    assert made.next(NOW, WALL) is None
    made.set_profile(profile("p", power="water"), NOW)
    assert next_of(made).names == ["a"]
    made.replace_profiles([profile("p", power="coal")], NOW)
    assert next_of(nominator(by_policy(FREE_OF_CARBON), clusters=[cluster("a", profile="p")])).names == []
    made.delete_profile(profile("p"), NOW)
    own = cluster("a", profile="p", power="wind")
    made.set_cluster(own, NOW)
    made.set_profile(profile("p", power="water"), NOW)
    assert made.fleet.clusters[0].labels == {"power": "wind", "from": "profile"}


def test_a_job_of_several_kinds_of_pods_is_nominated_whole() -> None:
    given_spec = msgspec.structs.replace(workload().spec, pod_sets=[*(workload().spec.pod_sets or ())] * 2)
    two: KueueWorkload = msgspec.structs.replace(workload(), spec=given_spec)
    made = nominator(by_policy(CHEAPEST))
    made.set_workload(two, NOW)
    assert next_of(made).names == ["c"]
    assert len(reading.workload(two, has={}).components) == 2


NAMES = st.lists(st.sampled_from([f"c{number}" for number in range(30)]), unique=True)


@given(NAMES, NAMES, st.integers(1, 30), st.integers(1, 4), st.data())
def test_nominations_are_bounded_unique_and_stable(
    there: list[str], nominated: list[str], rounds: int, chosen: int, data: st.DataObject
) -> None:
    """Whatever is nominated: no more than may be, none twice, none that is not there; and the same if asked again."""
    down = data.draw(st.sets(st.sampled_from(there))) if there else set()
    fleet = fleet_of([reading.cluster(cluster(name, active=str(name not in down))) for name in sorted(there)])
    decide = by_policy(f"for workloads where true\nchoose 1 to {chosen} clusters\n")
    asked = reading.workload(workload(), has={})

    def names_after(before: Sequence[str]) -> list[str]:
        return nominate(asked, fleet, decide, before, rounds=rounds, most=MOST_NOMINATED)[1]

    names = names_after(nominated)
    able = set(there) - down
    if able:
        assert len(names) == len(set(names)) == min(MOST_NOMINATED, rounds * chosen, len(able))
        assert set(names) <= able
        assert set(names_after(names)) == set(names)
