"""A look for moves that is taken to repeat another one has the answer that a new decision has."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import Fleet, FleetCluster, Placement, SpreadConstraint, Workload
from kube_policy_scheduler.fleet.running import RunningWorkloads
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from tests.fleet.fleets import CORE, NOW, cluster, policies, workload
from tests.fleet.worlds import AGGREGATED, DYNAMIC

NAMES = ("a", "b", "c", "d")
PRICED = "score -(cluster.price ?? 9)"
POLICIES = (
    f"{PRICED}\ndivide best first\nrebalance",
    f"{PRICED}\ndivide best first\nrebalance at most 1 rest 10min if cluster.condition_age.Ready ?? 0s > 10min",
    f"{PRICED}\ndivide evenly\nrebalance at most 2",
    f"{PRICED}\nscore 5 if cluster.has > 0\ndivide best first\nrebalance",
    "score cluster.free.cpu\ndivide by cluster.room\nrebalance if cluster.room > 2",
    "divide best first\nrebalance",
    "rebalance",
    f"{PRICED}\nchoose 2 clusters\ndivide evenly\nrebalance",
    f"{PRICED}\nchoose 1 to 2 clusters over region at least 2\ndivide best first\nrebalance",
    f"{PRICED}\nfilter cluster.condition_age.Ready ?? 0s > 5min also running\ndivide best first\nrebalance at most 3",
    f"score 1 if cluster.condition_age.Ready > 5min\n{PRICED}\ndivide best first\nrebalance",
    f"{PRICED}\nfilter cluster.tier == 0 or cluster.condition_age.Ready ?? 0s > 5min\ndivide best first\nrebalance",
    f"{PRICED}\nhold if workload.replicas > 6\nlimit sum(replicas) to 5 over cluster\ndivide best first\nrebalance",
    "spread by workload.label.app over region\ndivide best first\nrebalance",
    f"{PRICED}\ndivide by cluster.room at least 2 each at most cluster.allocatable.cpu / 2cores each\nrebalance",
    f"{PRICED}\nfilter max(cluster.condition_age.Ready) ?? 0s > 5min\ndivide best first\nrebalance",
)
COMPILED = [policies(text) for text in POLICIES]
CLUSTERS = st.builds(
    lambda name, room, used, price, region, ready: replace(
        cluster(name, room, price=price, region=region, ready_for=ready, provider="own" if price == 1 else "aws"),
        allocated={"cpu": used * CORE},
    ),
    st.just("a"),
    st.integers(0, 9),
    st.integers(0, 4),
    st.integers(1, 3),
    st.sampled_from(["eu", "us"]),
    st.sampled_from([60.0, 3600.0]),
)
PLACEMENTS = st.sampled_from(
    [
        Placement(),
        Placement(scheduling=DYNAMIC),
        Placement(scheduling=AGGREGATED, spread=(SpreadConstraint("cluster", "", 1, 2),)),
    ]
)
WORKLOADS = st.builds(
    lambda has, more, labels, decided, placement: workload(
        sum(has.values()) + more, has, labels=labels, decided=decided, placement=placement
    ),
    st.dictionaries(st.sampled_from(NAMES), st.integers(1, 5), min_size=1, max_size=3),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([{}, {"app": "x"}]),
    st.sampled_from([None, NOW - 300.0]),
    PLACEMENTS,
)
Change: TypeAlias = tuple[str, Any]
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.sampled_from([1.0, 300.0, 900.0])),
        st.tuples(st.just("used"), st.tuples(st.sampled_from(NAMES), st.integers(0, 6))),
        st.tuples(st.just("cluster"), st.tuples(st.sampled_from(NAMES), CLUSTERS)),
        st.tuples(st.just("gone"), st.sampled_from(NAMES)),
        st.tuples(st.just("workload"), WORKLOADS),
        st.tuples(st.just("other"), WORKLOADS),
        st.tuples(st.just("nothing"), st.none()),
    ),
    min_size=1,
    max_size=8,
)


class _World:
    """A fleet that changes, with a workload that is looked at again and again."""

    def __init__(self, clusters: dict[str, FleetCluster], asked: Workload) -> None:
        self.now, self.clusters, self.asked = NOW, clusters, asked
        self.running = RunningWorkloads([asked])
        self._fleet: Fleet | None = None

    @property
    def fleet(self) -> Fleet:
        """Return the fleet as it is; the same object as long as it is the same."""
        if self._fleet is None:
            self._fleet = Fleet(tuple(self.clusters[name] for name in sorted(self.clusters)), running=self.running)
        return self._fleet

    def change(self, change: Change) -> None:
        """Have something happen."""
        what, value = change
        match what:
            case "time":
                self.now += value
            case "used" if value[0] in self.clusters:
                name, used = value
                self.clusters[name] = replace(self.clusters[name], allocated={"cpu": used * CORE})
            case "cluster":
                self.clusters[value[0]] = replace(value[1], name=value[0])
            case "gone":
                self.clusters.pop(value, None)
            case "workload":
                self.asked = value
                self.running.put(value)
            case "other":
                self.running.put(replace(value, name="other"))
        if what in ("used", "cluster", "gone"):
            self._fleet = None


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(COMPILED),
    st.fixed_dictionaries({name: CLUSTERS.map(lambda each, name=name: replace(each, name=name)) for name in NAMES}),
    WORKLOADS,
    CHANGES,
)
def test_a_look_has_the_answer_of_a_decision(
    compiled: FleetPolicies, clusters: dict[str, FleetCluster], asked: Workload, changes: list[Change]
) -> None:
    world = _World(clusters, asked)
    rules = FleetRules(compiled, clock=lambda: world.now)
    for change in [("nothing", None), *changes]:
        world.change(change)
        plain = compiled.rebalance(world.asked, world.fleet, Given(world.now))
        assert rules.move(world.asked, world.fleet) == (plain[0] if plain is not None else None)


class _Counted:
    """Decisions by a policy, with how often it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        self.looks = 0
        self.now = NOW
        self._rules = FleetRules(policies(text), clock=lambda: self.now)
        plain = FleetPolicies.rebalance

        def counted(*asked: Any) -> Any:
            self.looks += 1
            return plain(*asked)

        monkeypatch.setattr(FleetPolicies, "rebalance", counted)

    def look(self, asked: Workload, fleet: Fleet) -> None:
        """Look, and find nothing to move."""
        assert self._rules.move(asked, fleet) is None


TWO = {"a": cluster("a", 90, price=1), "b": cluster("b", 90, price=2)}


def _reporting(free: int, fleet: dict[str, FleetCluster] = TWO) -> Fleet:
    """Return the fleet after a report that so many cores of `b` are free."""
    return Fleet((fleet["a"], replace(fleet["b"], allocated={"cpu": (90 - free) * CORE})))


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        (f"{PRICED}\ndivide best first\nrebalance", 2),
        (f"{PRICED}\ndivide best first\nrebalance if cluster.condition_age.Ready > 10min", 2),
        ("score cluster.free.cpu if cluster.free.cpu > 100\ndivide best first\nrebalance", 4),
    ],
    ids=["room that suffices", "in time", "what is free"],
)
def test_a_workload_is_decided_again_only_if_what_decides_it_has_changed(
    monkeypatch: pytest.MonkeyPatch, text: str, looks: int
) -> None:
    counted, asked = _Counted(monkeypatch, text), workload(5, {"a": 5})
    for free in (90, 89, 88, 3):
        counted.look(asked, _reporting(free))
        counted.now += 60
        counted.look(asked, _reporting(free)) if looks == 2 else None
    assert counted.looks == looks
