"""The decision maker: what it does about bindings and clusters, and what it leaves alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.fleet.karmada.decision_maker import (
    TEMPLATE_TRIES,
    DecisionMaker,
    PlacementAlone,
    Question,
    Template,
    Work,
)
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Reason, ToldMember, Workload
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.lang.compiling.member_values import MemberValue
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady
from tests.fleet.fleets import policies
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC, SUCCESS
from tests.fleet.karmada.control_plane import ControlPlane


@pytest.fixture
def plane() -> ControlPlane:
    plane = ControlPlane()
    for name, cpu in (("a", 6), ("b", 12), ("c", 18)):
        plane.set_cluster(name, cpu=cpu)
    return plane


def maker(**given: Any) -> DecisionMaker:
    return DecisionMaker(["fleet"], **({"rules": PlacementAlone()} | given))


def condition(plane: ControlPlane, key: tuple[str, str]) -> str:
    (found,) = plane.bindings[key]["status"]["conditions"]
    reason: str = found["reason"]
    return reason


def test_a_binding_is_placed_by_two_writes_and_then_left_alone(plane: ControlPlane) -> None:
    key, one = plane.add("web", replicas=12), maker()
    plane.show_all(one, 0)
    plane.settle(one)
    assert (plane.targets(key), condition(plane, key), plane.writes) == ({"a": 2, "b": 4, "c": 6}, "Success", 2)
    plane.show_all(one, 1)
    plane.settle(one, 1)
    plane.show_all(maker(), 2)
    assert plane.writes == 2
    assert one.tallies.decisions == {"Success": 1}


def test_another_one_goes_on_where_the_first_was_killed_between_its_writes(plane: ControlPlane) -> None:
    terms = [{"affinityName": "own", "clusterNames": ["a"]}, {"affinityName": "cloud", "clusterNames": ["b", "c"]}]
    key, first = plane.add("web", replicas=12, placement=DYNAMIC | {"clusterAffinities": terms}), maker()
    plane.show_all(first, 0)
    work = first.next(Steady(0))
    assert isinstance(work, Work)
    assert work.patch is not None
    plane.patch(key, work.patch)
    plane.set_cluster("a", cpu=100)
    second = maker()
    plane.show_all(second, 1)
    plane.settle(second, 1)
    assert plane.targets(key) == {"b": 5, "c": 7}, "what runs by the second term is not taken back to the first"
    status = plane.bindings[key]["status"]
    assert (condition(plane, key), status["schedulerObservingAffinityName"]) == ("Success", "cloud")


def test_a_race_with_an_eviction_is_decided_again(plane: ControlPlane) -> None:
    key, one = plane.add("web", replicas=12), maker()
    plane.show_all(one, 0)
    work = one.next(Steady(0))
    assert isinstance(work, Work)
    plane.evict(key, "c")
    plane.carry_out(one, work, 0)
    assert plane.targets(key) == {}
    one.set_binding(plane.binding(key), Steady(0.1))
    plane.settle(one, 2)
    assert plane.targets(key) == {"a": 4, "b": 8}
    assert one.tallies.conflicts == 1


@pytest.mark.parametrize("seen_first", [False, True], ids=["then seen", "seen first"])
def test_what_was_overtaken_is_decided_again_as_soon_as_it_is_seen(seen_first: bool, plane: ControlPlane) -> None:
    key, one = plane.add("web", replicas=12), maker()
    plane.show_all(one, 0)
    for tick in range(5):  # others report the status all the time
        work = one.next(Steady(tick / 100))
        assert isinstance(work, Work)
        plane.set_health(key, {"a": bool(tick % 2)})
        if seen_first:
            one.set_binding(plane.binding(key), Steady(tick / 100))
        plane.carry_out(one, work, tick / 100)
        if not seen_first:
            assert one.next(Steady(tick / 100)) is None
            one.set_binding(plane.binding(key), Steady(tick / 100))
    plane.settle(one, 0.05)
    assert (condition(plane, key), one.tallies.conflicts) == ("Success", 5)


@pytest.mark.parametrize("shown", [(), ("c",)], ids=["none", "one of them"])
def test_nothing_is_taken_away_while_clusters_are_missing(shown: tuple[str, ...], plane: ControlPlane) -> None:
    key, one = plane.add("web", replicas=12, has={"a": 4, "b": 8}, applied=DUPLICATED), maker()
    clusters, plane.clusters = plane.clusters, {name: plane.clusters[name] for name in shown}
    plane.show_all(one, 0)
    plane.settle(one)
    plane.change(key, {"replicas": 13})
    one.set_binding(plane.binding(key), Steady(100))
    plane.settle(one, 100)
    assert plane.targets(key) == {"a": 4, "b": 8}
    plane.clusters = clusters
    plane.show_all(one, 200)
    plane.settle(one, 200)
    assert (condition(plane, key), sum(plane.targets(key).values())) == ("Success", 13)


@pytest.mark.parametrize(("in_order", "after"), [(True, 1.0), (False, 301.0)], ids=["in order", "at once"])
def test_what_ran_in_a_cluster_that_is_gone_goes_elsewhere(in_order: bool, after: float, plane: ControlPlane) -> None:
    key, one = plane.add("web", replicas=12), maker()
    plane.show_all(one, 0)
    plane.settle(one)
    if in_order:
        plane.set_cluster("c", cpu=18, deletionTimestamp="2026-11-20T09:00:00Z")
        one.set_cluster(plane.cluster("c"), Steady(0.5))
    one.delete_cluster("c", Steady(0.6))
    plane.settle(one, after - 0.5)
    assert (plane.targets(key) == {"a": 2, "b": 4, "c": 6}) is not in_order
    plane.settle(one, after)
    plane.settle(one, after + 300)
    assert plane.targets(key) == {"a": 4, "b": 8}


def test_a_status_that_flaps_costs_few_decisions(plane: ControlPlane) -> None:
    key, one = plane.add("web", replicas=100), maker()
    plane.show_all(one, 0)
    for tick in range(6000):
        now = tick / 100
        plane.set_cluster("a", cpu=6 + tick % 2)
        one.set_cluster(plane.cluster("a"), Steady(now))
        plane.settle(one, now)
    assert condition(plane, key) == "Unschedulable"
    assert one.tallies.decisions["Unschedulable"] <= 8
    plane.set_cluster("a", cpu=100)
    one.set_cluster(plane.cluster("a"), Steady(61))
    plane.settle(one, 61 + 31)
    assert condition(plane, key) == "Success"


def test_labels_that_flap_cost_few_decisions_of_what_cannot_be_placed(plane: ControlPlane) -> None:
    plane.add("web", replicas=100)
    one = maker()
    plane.show_all(one, 0)
    for tick in range(1000):
        plane.set_cluster("a", labels={"n": str(tick)})
        one.set_cluster(plane.cluster("a"), Steady(tick / 100))
        plane.settle(one, tick / 100)
    assert one.tallies.decisions["Unschedulable"] <= 11


def test_what_is_not_karmadas_form_is_told_in_the_binding(plane: ControlPlane) -> None:
    key, one = plane.add("web", placement={"spreadConstraints": "all"}, has={"a": 3}), maker()
    plane.show_all(one, 0)
    plane.settle(one)
    assert condition(plane, key) == "SchedulerError"
    assert plane.targets(key) == {"a": 3}


def test_members_of_a_workload_affinity_group_go_together(plane: ControlPlane) -> None:
    together = {"workloadAffinityGroups": {"affinityGroup": "app=db"}}
    one_cluster = DYNAMIC | {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}
    first = plane.add("one", placement=DYNAMIC | {"clusterAffinity": {"clusterNames": ["a"]}}, **together)
    one = maker(features=frozenset({"WorkloadAffinity"}))
    plane.show_all(one, 0)
    plane.settle(one)
    second = plane.add("two", placement=one_cluster, **together)
    apart = plane.add("three", placement=one_cluster, workloadAffinityGroups={"affinityGroup": "app=other"})
    plane.show_all(one, 1)
    plane.settle(one, 1)
    assert [plane.targets(key) for key in (first, second, apart)] == [{"a": 3}, {"a": 3}, {"c": 3}]


def test_bindings_of_other_schedulers_are_members_of_workload_affinity_groups(plane: ControlPlane) -> None:
    apart = {"workloadAffinityGroups": {"antiAffinityGroup": "app=db"}}
    in_a = plane.add("theirs", schedulerName="default-scheduler", has={"a": 3}, **apart)
    one = maker(features=frozenset({"WorkloadAffinity"}))
    plane.show_all(one, 0)

    def where(name: str, now: float) -> set[str]:
        key = plane.add(name, placement=DUPLICATED, replicas=1, **apart)
        one.set_binding(plane.binding(key), Steady(now))
        plane.settle(one, now)
        found = set(plane.targets(key))
        del plane.bindings[key]
        one.delete_binding(key)
        return found

    assert where("one", 1) == {"b", "c"}
    plane.change(in_a, {"clusters": [{"name": "b", "replicas": 3}]})
    one.set_binding(plane.binding(in_a), Steady(2))
    assert where("two", 2) == {"a", "c"}
    one.replace_bindings([], Steady(3), namespaced=True)
    assert where("three", 3) == {"a", "b", "c"}
    one.set_binding(plane.binding(in_a), Steady(4))
    one.delete_binding(in_a)
    assert where("four", 4) == {"a", "b", "c"}


def test_members_of_one_name_and_kind_of_two_apis_are_two(plane: ControlPlane) -> None:
    apart = {"workloadAffinityGroups": {"antiAffinityGroup": "app=db"}}
    for api, where in (("apps/v1", "a"), ("apps.example.com/v1", "b")):
        resource = {"apiVersion": api, "kind": "Deployment", "namespace": "shop", "name": "db", "uid": api}
        plane.add(f"db-{where}", schedulerName="default-scheduler", has={where: 1}, resource=resource, **apart)
    key = plane.add("web", placement=DUPLICATED, replicas=1, **apart)
    one = maker(features=frozenset({"WorkloadAffinity"}))
    plane.show_all(one, 0)
    plane.settle(one)
    assert plane.targets(key) == {"c": 1}


def test_workloads_stay_apart_while_their_placements_are_being_written(plane: ControlPlane) -> None:
    apart = {"workloadAffinityGroups": {"antiAffinityGroup": "app=db"}}
    one_cluster = DYNAMIC | {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}
    for name in ("one", "two", "three"):
        plane.add(name, placement=one_cluster, replicas=1, **apart)
    one = maker(features=frozenset({"WorkloadAffinity"}))
    plane.show_all(one, 0)
    works = [one.next(Steady(0)) for _ in range(3)]
    assert all(isinstance(work, Work) and work.outcome is not None for work in works)
    assert {name for work in works for name in work.outcome.targets} == {"a", "b", "c"}  # type: ignore[union-attr]


class Counting(PlacementAlone):
    """Rules that note what they are asked."""

    reads_templates = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Workload] = []

    def decide(self, workload: Workload, fleet: Fleet) -> Outcome:
        self.asked.append(workload)
        return place(workload, fleet)


def test_a_template_is_read_once_for_each_change_of_what_is_asked(plane: ControlPlane) -> None:
    rules = Counting()
    key, one = plane.add("web", replicas=3), maker(rules=rules)
    plane.show_all(one, 0)
    question = one.next(Steady(0))
    assert isinstance(question, Question)
    assert (question.template.kind, question.template.name) == ("Deployment", "web")
    assert one.next(Steady(0)) is None
    one.set_template(key, Template({"app": "web"}, {}), Steady(0))
    plane.settle(one)
    assert [each.labels for each in rules.asked] == [{"app": "web"}]
    plane.change(key, {"replicas": 5})
    one.set_binding(plane.binding(key), Steady(1))
    assert isinstance(one.next(Steady(1)), Question)


def test_other_rules_decide_from_now_on(plane: ControlPlane) -> None:
    class Nowhere(PlacementAlone):
        def decide(self, workload: Workload, fleet: Fleet) -> Outcome:
            return Outcome(Reason.UNSCHEDULABLE, "held", workload.has)

    key, one = plane.add("web", replicas=3, placement=DUPLICATED), maker()
    plane.show_all(one, 0)
    plane.settle(one)
    one.use(Nowhere(), Steady(1))
    plane.settle(one, 1)
    assert condition(plane, key) == "Unschedulable"
    assert plane.targets(key) == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize("name", ["x" * 253, "\N{SNOWMAN}" * 100, "a/../b", '"}', ""])
def test_strange_names_are_names(name: str, plane: ControlPlane) -> None:
    plane.set_cluster(name, cpu=1000, labels={name: name, "k" * 10_000: "v" * 10_000})
    key, one = plane.add(name or "web", replicas=1036), maker()
    plane.show_all(one, 0)
    plane.settle(one)
    assert condition(plane, key) in ("Success", "Unschedulable")


@pytest.mark.parametrize(("counts", "found"), [(False, {"a": 15}), (True, {"a": 10, "b": 5})])
def test_a_burst_is_shared_if_what_is_decided_counts(counts: bool, found: dict[str, int]) -> None:
    plane = ControlPlane()
    plane.set_cluster("a", cpu=10)
    plane.set_cluster("b", cpu=5)
    placement = {"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}}
    keys = [plane.add(f"w{number}", replicas=1, placement=placement) for number in range(15)]
    one = maker(rules=PlacementAlone(counts_decided=counts))
    plane.show_all(one, 0)
    plane.settle(one)
    where = Counter(name for key in keys for name in plane.targets(key))
    assert where == found


def test_what_is_decided_counts_until_it_is_healthy_or_for_five_minutes() -> None:
    plane = ControlPlane()
    plane.set_cluster("a", cpu=10)
    one = maker(rules=PlacementAlone(counts_decided=True))
    first, second = plane.add("one", replicas=6), plane.add("two", replicas=6)
    plane.show_all(one, 0)
    plane.settle(one)
    assert (condition(plane, first), condition(plane, second)) == ("Success", "Unschedulable")
    plane.set_health(first, {"a": False})
    one.set_binding(plane.binding(first), Steady(200))
    plane.settle(one, 299)
    assert condition(plane, second) == "Unschedulable", "not healthy yet"
    plane.settle(one, 301)
    assert condition(plane, second) == "Success"
    assert one.fleet.clusters[0].allocating["cpu"] == 6 * 10**9, "of the second alone"
    plane.set_health(second, {"a": True})
    one.set_binding(plane.binding(second), Steady(302))
    assert one.fleet.clusters[0].allocating == {}
    one.delete_binding(first)
    one.delete_binding(second)
    assert one.fleet.clusters[0].allocating == {}


def test_the_status_of_a_cluster_asks_nothing_of_what_is_placed(plane: ControlPlane) -> None:
    for number in range(60):
        plane.add(f"w{number}", replicas=1, placement=(DYNAMIC, DUPLICATED)[number % 2])
    one = maker()
    plane.show_all(one, 0)
    plane.settle(one)
    decided = sum(one.tallies.decisions.values())
    for tick in range(20):
        plane.set_cluster("a", cpu=tick)
        one.set_cluster(plane.cluster("a"), Steady(1.0 + tick))
    assert one.next(Steady(100)) is None
    assert sum(one.tallies.decisions.values()) == decided == 60


@pytest.mark.parametrize("killed", [False, True], ids=["others write in between", "killed in between"])
def test_replicas_rest_after_a_move_that_nobody_came_to_tell(killed: bool, plane: ControlPlane) -> None:
    text = 'score 100 if cluster.name == "a"\ndivide best first\nrebalance at most 1 rest 10min'
    clock = [2.0]
    rules = FleetRules(policies(text), clock=lambda: 1.8e9 + clock[0])
    told = {"schedulerObservedGeneration": 1, "lastScheduledTime": "2026-01-01T00:00:00Z", "conditions": SUCCESS}
    key = plane.add("web", replicas=4, has={"c": 4}, applied=DYNAMIC, status=told)
    plane.set_health(key, {"c": True})
    one = maker(rules=rules)
    plane.show_all(one, 0)
    work = one.next(Steady(2))
    while isinstance(work, Question):
        plane.carry_out(one, work, 2)
        work = one.next(Steady(2))
    assert work is not None
    assert work.patch is not None
    plane.patch(key, work.patch)
    assert plane.targets(key) == {"a": 1, "c": 3}
    plane.set_health(key, {"a": True, "c": True})
    if killed:
        one = maker(rules=rules)
        plane.show_all(one, 2)
    else:
        one.conflicted(work, Steady(2))
        one.set_binding(plane.binding(key), Steady(2))
    for now, moved in ((3, 1), (300, 1), (595, 1), (610, 2)):
        clock[0] = now
        one.look_for_moves(Steady(now))
        plane.settle(one, now)
        assert plane.targets(key) == {"a": moved, "c": 4 - moved}


@pytest.mark.parametrize("changed", [False, True], ids=["our write alone", "a change of its owner, too"])
def test_a_write_that_the_watch_shows_before_its_answer_is_no_change(changed: bool, plane: ControlPlane) -> None:
    key, one = plane.add("web", replicas=5, placement=DUPLICATED), maker()
    plane.show_all(one, 0)
    work = one.next(Steady(0))
    assert isinstance(work, Work)
    assert work.patch is not None
    written = plane.patch(key, work.patch)
    one.set_binding(written, Steady(0.1))
    status = one.status_of(work, written, generation=written.metadata.generation, now=1.8e9)
    assert status is not None
    answer = plane.patch(key, status, status=True)
    if changed:
        plane.change(key, {"replicas": 6})
        one.set_binding(plane.binding(key), Steady(0.2))
    one.done(work, answer, Steady(0.3))
    again = one.next(Steady(0.3))
    assert (again is not None) is changed


def test_a_cluster_that_changes_during_a_write_counts_even_if_the_watch_shows_the_write(plane: ControlPlane) -> None:
    key, one = plane.add("web", replicas=5, placement=DUPLICATED), maker()
    plane.show_all(one, 0)
    work = one.next(Steady(0))
    assert isinstance(work, Work)
    assert work.patch is not None
    plane.set_cluster("d")
    one.set_cluster(plane.cluster("d"), Steady(0.1))
    written = plane.patch(key, work.patch)
    one.set_binding(written, Steady(0.2))
    one.done(work, written, Steady(0.3))
    plane.settle(one, 0.3)
    assert "d" in plane.targets(key)


# --- room that clusters say ------------------------------------------------------------------------------


def test_clusters_are_asked_for_their_room_before_each_decision(plane: ControlPlane) -> None:
    plane.room = {"a": {"capacity": 1}, "b": {"estimator": 3}, "c": {"capacity": 40}}
    key, one = plane.add("web", replicas=12), maker(asks_clusters=True)
    plane.show_all(one, 0)
    plane.settle(one)
    assert plane.asked == [("a", "b", "c")]
    assert plane.targets(key) == {"b": 1, "c": 11}
    outcome = one.would_decide(key)
    assert outcome is not None
    assert {name: (each.room, each.room_by) for name, each in outcome.verdicts.items()} == {
        "a": (1, "capacity"),
        "b": (3, "estimator"),
        "c": (40, "capacity"),
    }
    plane.room = {name: {"capacity": 2 if name == "a" else 0} for name in "abc"}
    plane.change(key, {"replicas": 14})
    one.set_binding(plane.binding(key), Steady(1))
    plane.settle(one, 1)
    assert len(plane.asked) == 2
    assert plane.targets(key) == {"a": 2, "b": 1, "c": 11}


def test_a_cluster_that_says_nothing_counts_by_its_status(plane: ControlPlane) -> None:
    key, one = plane.add("web", replicas=12), maker(asks_clusters=True)
    plane.show_all(one, 0)
    plane.settle(one)
    assert plane.targets(key) == {"a": 2, "b": 4, "c": 6}


def test_only_clusters_that_may_be_chosen_are_asked(plane: ControlPlane) -> None:
    plane.add("web", placement=DYNAMIC | {"clusterAffinity": {"clusterNames": ["b", "c"]}})
    plane.add("configuration", replicas=0, replicaRequirements=None)
    one = maker(asks_clusters=True)
    plane.show_all(one, 0)
    plane.settle(one)
    assert plane.asked == [("b", "c")]


class Moving(PlacementAlone):
    """Rules that look for moves, and find none."""

    moves = True


def test_looks_for_moves_ask_each_cluster_once_a_minute(plane: ControlPlane) -> None:
    plane.add("web", replicas=12)
    one = maker(asks_clusters=True, rules=Moving())
    plane.show_all(one, 0)
    plane.settle(one)
    for now in range(1, 200):
        one.look_for_moves(Steady(now))
        plane.settle(one, now)
    assert 3 <= len(plane.asked) <= 5


def by_limit(text: str, **given: Any) -> DecisionMaker:
    found = policies(f"{text}\nscore cluster.allocatable.cpu\ndivide best first")
    return maker(rules=FleetRules(found, clock=lambda: 0.0), **given)


def test_what_is_being_written_counts_for_limits_and_room(plane: ControlPlane) -> None:
    keys = [plane.add(f"web-{number}", replicas=4) for number in range(3)]
    one = by_limit("limit sum(replicas) to 8 over cluster")
    plane.show_all(one, 0)
    work = []
    while (found := one.next(Steady(0))) is not None:
        if isinstance(found, Question):
            one.set_template(found.key, Template({}, {}), Steady(0))
        else:
            work.append(found)
    assert len(work) == 3
    for each in work:
        plane.carry_out(one, each, 0)
    assert [plane.targets(key) for key in keys] == [{"c": 4}, {"c": 4}, {"b": 4}]


def test_what_could_not_be_written_does_not_count(plane: ControlPlane) -> None:
    first, second = plane.add("a", replicas=6), plane.add("b", replicas=6)
    one = by_limit("limit sum(replicas) to 6 over cluster")
    plane.show_all(one, 0)
    work = one.next(Steady(0))
    while isinstance(work, Question):
        one.set_template(work.key, Template({}, {}), Steady(0))
        work = one.next(Steady(0))
    assert isinstance(work, Work)
    one.broke(work.key, Steady(0))
    plane.settle(one, 0)
    plane.settle(one, 5)
    assert [plane.targets(key) for key in (first, second)] == [{"b": 6}, {"c": 6}]


def test_nothing_is_decided_by_limits_before_all_that_runs_is_known(plane: ControlPlane) -> None:
    old, new = plane.add("old", replicas=4), plane.add("new", replicas=4)
    text = "limit sum(replicas) by workload.label.team to 6 over cluster"
    first = by_limit(text)
    plane.show_all(first, 0)
    plane.settle(first)
    plane.change(new, {"clusters": []})
    again = by_limit(text)
    plane.show_all(again, 1)
    asked = [again.next(Steady(1)) for _ in range(3)]
    questions = [each for each in asked if isinstance(each, Question)]
    assert {each.key for each in questions} == {old, new}
    assert asked[2] is None
    by_key = {each.key: each for each in questions}
    again.set_template(by_key[new].key, Template({"team": "x"}, {}), Steady(1))
    assert again.next(Steady(1)) is None, "nobody knows which team the old one is of"
    again.set_template(by_key[old].key, Template({"team": "x"}, {}), Steady(1))
    plane.settle(again, 2)
    assert (plane.targets(old), plane.targets(new)) == ({"c": 4}, {"b": 2, "c": 2})


def test_who_waits_for_a_limit_is_placed_once_another_one_leaves(plane: ControlPlane) -> None:
    first, second = plane.add("first", replicas=4), plane.add("second", replicas=4)
    one = by_limit("limit sum(replicas) to 5")
    plane.show_all(one, 0)
    plane.settle(one)
    assert (plane.targets(first), plane.targets(second)) == ({"c": 4}, {})
    assert condition(plane, second) == "Unschedulable"
    one.delete_binding(first)
    plane.settle(one, 40)
    assert plane.targets(second) == {"c": 4}


def test_what_other_schedulers_run_counts_for_limits_as_soon_as_it_is_known(plane: ControlPlane) -> None:
    theirs = plane.add("theirs", replicas=4, schedulerName="default-scheduler", has={"c": 4})
    stray = plane.add("stray", replicas=4, schedulerName="default-scheduler", has={"b": 4})
    mine = plane.add("mine", replicas=4)
    one = by_limit("limit sum(replicas) by workload.label.team to 6")
    plane.show_all(one, 0)
    asked = [one.next(Steady(0)) for _ in range(4)]
    assert {each.key for each in asked if isinstance(each, Question)} == {theirs, stray, mine}
    assert asked[3] is None
    one.set_template(mine, Template({"team": "x"}, {}), Steady(0))
    one.set_template(stray, Template({"team": "y"}, {}), Steady(0))
    assert one.next(Steady(0)) is None, "nobody knows which team theirs is of"
    one.set_template(theirs, Template({"team": "x"}, {}), Steady(0))
    plane.settle(one, 0)
    assert (plane.targets(mine), condition(plane, mine)) == ({}, "Unschedulable")
    assert len(one.waiting) == 1, "only ours is decided"
    plane.change(theirs, {"clusters": [{"name": "c", "replicas": 2}]})
    one.set_binding(plane.binding(theirs), Steady(20))
    plane.settle(one, 40)
    assert plane.targets(mine) == {"c": 4}


def test_what_other_schedulers_run_counts_no_more_once_it_is_gone_or_ours(plane: ControlPlane) -> None:
    text = "limit sum(replicas) to 5"
    theirs = plane.add("theirs", replicas=4, schedulerName="default-scheduler", has={"c": 4})
    mine = plane.add("mine", replicas=4)
    for end in ("deleted", "not listed", "nowhere", "ours"):
        one = by_limit(text)
        plane.show_all(one, 0)
        plane.settle(one, 0)
        assert plane.targets(mine) == {}, end
        binding = plane.binding(theirs)
        if end == "deleted":
            one.delete_binding(theirs)
        elif end == "not listed":
            one.replace_bindings([plane.binding(mine)], Steady(30), namespaced=True)
        elif end == "nowhere":
            spec = msgspec.structs.replace(binding.spec, clusters=[])
            one.set_binding(msgspec.structs.replace(binding, spec=spec), Steady(30))
        else:
            spec = msgspec.structs.replace(binding.spec, scheduler_name="fleet", clusters=[], replicas=0)
            one.set_binding(msgspec.structs.replace(binding, spec=spec), Steady(30))
        works = []
        while (work := one.next(Steady(400))) is not None:
            if isinstance(work, Question):
                one.set_template(work.key, Template({}, {}), Steady(400))
            else:
                works.append(work)
                one.done(work, work.binding, Steady(400))
        placed = {work.key: work.outcome.targets for work in works if work.outcome is not None}
        assert placed[mine] == {"c": 4}, end


def test_without_policies_that_count_others_no_template_of_others_is_read(plane: ControlPlane) -> None:
    plane.add("theirs", replicas=4, schedulerName="default-scheduler", has={"c": 4})
    one = maker(rules=FleetRules(policies("divide best first"), clock=lambda: 0.0))
    plane.show_all(one, 0)
    assert one.next(Steady(0)) is None
    limit = FleetRules(policies("limit sum(replicas) to 5"), clock=lambda: 0.0)
    one.use(limit, Steady(1))
    assert isinstance(one.next(Steady(1)), Question)


def test_bindings_are_decided_in_the_order_of_their_policy(plane: ControlPlane) -> None:
    clock = [0.0]
    rules = FleetRules(policies("order by workload.label.tier, workload.waiting desc"), clock=lambda: clock[0])
    one = maker(rules=rules)
    tiers = {"c": "bronze", "a": "silver", "d": "gold", "b": "gold"}
    keys = {name: plane.add(name, replicas=1) for name in tiers}
    plane.show_all(one, 0)
    decided = []
    while (work := one.next(Steady(0))) is not None:
        if isinstance(work, Question):
            assert not decided, "what must be read is asked for before anything is decided"
            one.set_template(work.key, Template({"tier": tiers[work.template.name]}, {}), Steady(0))
        else:
            decided.append(work.key)
    assert decided == [keys[name] for name in ("c", "d", "b", "a")]


LABELLED = 'filter cluster.name == "b" if workload.label.app == "web"\n'


def asked_by_policy(plane: ControlPlane) -> DecisionMaker:
    maker = DecisionMaker(["fleet"], rules=FleetRules(policies(LABELLED), clock=lambda: 1.8e9))
    plane.show_all(maker, 0.0)
    return maker


def test_a_template_that_cannot_be_read_just_now_is_asked_for_again_and_then_done_without() -> None:
    plane = ControlPlane()
    plane.set_cluster("a")
    plane.add("web")
    maker, now, tries = asked_by_policy(plane), 0.0, 0
    while isinstance(work := maker.next(Steady(now)), Question):
        tries += 1
        maker.template_failed(work.key, "no answer", Steady(now))
        now = max(now, maker.waiting.due() or 0.0)
    assert isinstance(work, Work)
    assert (tries, now, work.unread) == (TEMPLATE_TRIES, 7.0, "no answer")
    assert maker.tallies.unread_templates == 1


def test_a_template_that_could_not_be_read_is_read_before_a_later_decision() -> None:
    plane = ControlPlane()
    for name in ("a", "b"):
        plane.set_cluster(name)
    key = plane.add("web", replicas=2)
    maker = asked_by_policy(plane)
    question = maker.next(Steady(0.0))
    assert isinstance(question, Question)
    maker.set_template(key, Template(problem="forbidden"), Steady(0.0))
    work = maker.next(Steady(0.0))
    assert isinstance(work, Work)
    assert work.unread == "forbidden"
    plane.carry_out(maker, work, 0.0)
    maker.set_binding(plane.binding(key), Steady(0.0))
    assert plane.targets(key) == {"a": 1, "b": 1}
    taken_away = [{"name": "b", "replicas": 1}]
    plane.change(key, {"clusters": taken_away})
    maker.set_binding(plane.binding(key), Steady(30.0))
    assert isinstance(maker.next(Steady(30.0)), Work)  # it was asked for half a minute ago
    plane.change(key, {"clusters": []})
    maker.broke(key, Steady(30.0))
    maker.set_binding(plane.binding(key), Steady(70.0))
    assert isinstance(maker.next(Steady(70.0)), Question)
    maker.set_template(key, Template({"app": "web"}, {}), Steady(70.0))
    work = maker.next(Steady(70.0))
    assert isinstance(work, Work)
    assert work.outcome is not None
    assert (work.unread, dict(work.outcome.targets)) == ("", {"b": 2})


# --- nodes and pods of clusters --------------------------------------------------------------------------------


def reading_maker(text: str) -> tuple[DecisionMaker, MemberValue]:
    """Return a decision maker by a policy that asks one thing about nodes and pods of clusters, and that thing."""
    rules = FleetRules(policies(text), clock=lambda: 0.0)
    (asked,) = rules.member_values
    return maker(rules=rules, reads_members=True), asked


LARGE = "filter count(n in cluster.nodes) ?? 0 >= 2 as large\ndivide evenly"


def test_a_decision_waits_for_the_clusters_that_its_policy_reads_and_for_no_other(plane: ControlPlane) -> None:
    one, asked = reading_maker(LARGE)
    plane.read = {"a": ToldMember({asked: 1}, 1.0), "b": ToldMember({asked: 2}, 1.0), "c": ToldMember({}, None, "no")}
    of_two = DUPLICATED | {"clusterAffinity": {"clusterNames": ["a", "b"]}}
    first, second = plane.add("web", replicas=2, placement=of_two), plane.add("api", replicas=2)
    plane.show_all(one, 0)
    plane.settle(one)
    assert plane.waited_for == [("a", "b"), ("c",)]
    assert (plane.targets(first), plane.targets(second)) == ({"b": 2}, {"b": 2})
    shown = one.would_decide(second)
    assert shown is not None
    assert {name: (each.read_at, each.unread) for name, each in shown.verdicts.items()} == {
        "a": (1.0, ""), "b": (1.0, ""), "c": (None, "no"),
    }  # fmt: skip


def test_what_nobody_tells_in_time_is_missing_and_asked_for_again_before_the_next_decision(plane: ControlPlane) -> None:
    one, asked = reading_maker(LARGE)
    key = plane.add("web", replicas=2)
    plane.show_all(one, 0)
    plane.settle(one)
    assert (plane.targets(key), plane.waited_for) == ({}, [("a", "b", "c")])
    one.set_member("b", ToldMember({asked: 5}, 1.0), Steady(10))
    plane.settle(one, 10)
    assert plane.targets(key) == {"b": 2}
    assert plane.waited_for[1:] == [("a", "c")]


def test_a_value_that_changes_wakes_what_waits_and_may_go_there_and_one_that_stays_nothing(plane: ControlPlane) -> None:
    one, asked = reading_maker(LARGE)
    plane.read = {name: ToldMember({asked: 1}, 0.0) for name in "abc"}
    key = plane.add("web", replicas=2, placement=DYNAMIC | {"clusterAffinity": {"clusterNames": ["a", "b"]}})
    plane.show_all(one, 0)
    plane.settle(one)
    decided = one.tallies.decisions.copy()
    one.set_member("a", ToldMember({asked: 1}, 60.0), Steady(60))
    one.set_member("c", ToldMember({asked: 9}, 60.0), Steady(60))
    plane.settle(one, 60)
    assert one.tallies.decisions == decided
    one.set_member("b", ToldMember({asked: 2}, 60.0), Steady(60))
    plane.settle(one, 60)
    assert plane.targets(key) == {"b": 2}


def test_clusters_are_not_read_for_policies_that_do_not_ask(plane: ControlPlane) -> None:
    one = maker(rules=FleetRules(policies("divide evenly"), clock=lambda: 0.0), reads_members=True)
    plane.add("web", replicas=3)
    plane.show_all(one, 0)
    plane.settle(one)
    assert plane.waited_for == []


def test_a_policy_that_asks_for_something_new_waits_for_it(plane: ControlPlane) -> None:
    one, asked = reading_maker(LARGE)
    plane.read = {name: ToldMember({asked: 2}, 0.0) for name in "abc"}
    key = plane.add("web", replicas=3)
    plane.show_all(one, 0)
    plane.settle(one)
    rules = FleetRules(policies("filter count(p in cluster.pods) ?? 9 < 5 as quiet\ndivide evenly"), clock=lambda: 0.0)
    plane.read = {name: ToldMember({rules.member_values[0]: 1}, 1.0) for name in "abc"}
    one.use(rules, Steady(1))
    plane.change(key, {"replicas": 6})
    one.set_binding(plane.binding(key), Steady(1))
    plane.settle(one, 1)
    assert plane.waited_for == [("a", "b", "c")] * 2
    assert plane.targets(key) == {"a": 2, "b": 2, "c": 2}


def test_a_cluster_that_is_no_longer_read_has_no_value(plane: ControlPlane) -> None:
    one, asked = reading_maker(LARGE)
    plane.read = {name: ToldMember({asked: 2}, 0.0) for name in "abc"}
    key = plane.add("web", replicas=3)
    plane.show_all(one, 0)
    one.set_member("b", ToldMember({asked: 2}, 0.0), Steady(0))
    one.set_member("b", None, Steady(0))
    plane.settle(one)
    assert plane.waited_for == [("a", "b", "c")]
    assert plane.targets(key) == {"a": 1, "b": 1, "c": 1}
