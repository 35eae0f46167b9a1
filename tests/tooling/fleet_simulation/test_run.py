"""A fleet in virtual time: what is lost, moves and comes back, by the decision maker of the daemon."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kube_policy_scheduler.fleet.repeats import Repeats
from kube_policy_scheduler.tooling.fleet_simulation.run import extended
from tests.tooling.fleet_simulation.scenarios import BACK, OWN_FIRST, fleet, simulated, told

WEB = "workloads: [{name: web, namespace: shop, replicas: 8, cpu: 1}]"


def test_a_region_is_lost_and_comes_back_two_replicas_at_a_time() -> None:
    run = simulated(fleet(workloads=WEB, events="events: [{at: 10min, lose: {region: eu}, for: 30min}]"), BACK)
    assert told(run, "lost", "evicted", "placed", "recovered") == [
        (0.0, "shop/web: berlin 6, iowa 2"),
        (600.0, "region eu: berlin, frankfurt"),
        (900.0, "shop/web: 6 replicas from berlin"),
        (900.0, "shop/web: iowa 8"),
        (2400.0, "region eu: berlin, frankfurt"),
    ]
    moves = told(run, "moved")
    assert [text for _, text in moves] == ["shop/web: 2 from iowa to berlin"] * 3
    # in whole seconds: ten minutes after it is ready again, then every ten; late by a fifth of that at most
    times = [2400.0, *(at for at, _ in moves)]
    assert all(599.0 <= later - earlier <= 725.0 for earlier, later in pairwise(times))
    assert (run.before, run.after) == ({"berlin": 6, "iowa": 2}, {"berlin": 6, "iowa": 2})
    assert (run.evicted, run.moved, run.most_moved, run.unplaced) == (6, 6, 2, 0)
    # six replicas for the 5 min until they are evicted, and the 30 s until they run elsewhere
    started = 8 * 30.0
    moved = 6 * 30.0
    assert run.missing_seconds == pytest.approx(started + 6 * 330.0 + moved)
    assert run.down_seconds == 0.0


def _times(moves: list[tuple[float, str]]) -> list[float]:
    return [at for at, _ in moves]


def test_without_rebalance_nothing_returns() -> None:
    run = simulated(fleet(workloads=WEB, events="events: [{at: 10min, lose: {region: eu}, for: 30min}]"), OWN_FIRST)
    assert run.after == {"iowa": 8}
    assert run.moved == 0


def test_a_cluster_that_is_back_before_the_eviction_keeps_its_replicas() -> None:
    run = simulated(fleet(workloads=WEB, events="events: [{at: 10min, lose: berlin, for: 2min}]"), BACK)
    assert (run.evicted, run.moved, run.after) == (0, 0, {"berlin": 6, "iowa": 2})
    assert run.missing_seconds == pytest.approx(8 * 30.0 + 6 * 120.0)


def test_a_workload_with_all_its_replicas_in_a_lost_cluster_is_down_until_they_run_elsewhere() -> None:
    scenario = fleet(
        workloads="workloads: [{name: web, replicas: 4, cpu: 1}]",
        events="{evict_after: 1min, start: 10s, events: [{at: 5min, lose: berlin}]}",
    )
    run = simulated(scenario, OWN_FIRST)
    assert (run.down_seconds, run.down_workloads, run.longest_down) == (70.0, 1, (70.0, "default/web"))


def test_who_leaves_a_cluster_that_is_drained_runs_there_until_it_is_healthy_elsewhere() -> None:
    drain = "events: [{at: 10min, change: {name: berlin, taints: ['drain=true:NoExecute']}}]"
    run = simulated(fleet(workloads="workloads: [{name: web, replicas: 4, cpu: 1}]", events=drain), OWN_FIRST)
    assert told(run, "evicted", "placed")[1:] == [
        (600.0, "default/web: 4 replicas from berlin"),
        (600.0, "default/web: iowa 4"),
    ]
    assert run.missing_seconds == pytest.approx(4 * 30.0), "only when it came"
    assert run.down_seconds == 0.0


@pytest.mark.parametrize(
    ("tolerations", "evicted"),
    [
        ("[{key: cluster.karmada.io/not-ready, operator: Exists}]", []),
        ("[{key: cluster.karmada.io/not-ready, operator: Exists, tolerationSeconds: 60}]", [660.0]),
        ("[{key: other, operator: Exists}]", [900.0]),
    ],
)
def test_a_workload_stays_as_long_as_it_tolerates_it(tolerations: str, evicted: list[float]) -> None:
    scenario = fleet(
        workloads="workloads: [{name: web, replicas: 4, cpu: 1, placement:"
        f" {{replicaScheduling: {{replicaSchedulingType: Divided}}, clusterTolerations: {tolerations}}}}}]",
        events="events: [{at: 10min, lose: berlin}]",
    )
    assert _times(told(simulated(scenario, OWN_FIRST), "evicted")) == evicted


def test_workloads_come_and_end_and_grow() -> None:
    scenario = fleet(
        workloads="""
workloads:
- {name: batch, replicas: 2, cpu: 1, count: 2, every: 5min, lasts: 1h}
- {name: web, replicas: 2, cpu: 1, at: 2h}
""",
        events="events: [{at: 3h, scale: {workload: web, replicas: 9}}, {at: 4h, end: web}]",
    )
    run = simulated(scenario, OWN_FIRST)
    assert told(run, "arrived", "ended", "scaled", "placed") == [
        (0.0, "default/batch-1: berlin 2"),
        (300.0, "default/batch-2: 2 replicas"),
        (300.0, "default/batch-2: berlin 2"),
        (3600.0, "default/batch-1"),
        (3900.0, "default/batch-2"),
        (7200.0, "default/web: 2 replicas"),
        (7200.0, "default/web: berlin 2"),
        (10800.0, "default/web: from 2 to 9 replicas"),
        (10800.0, "default/web: berlin 6, iowa 3"),
        (14400.0, "default/web"),
    ]
    assert (run.after, run.unplaced, run.last_price) == ({}, 0, 0.0)


def test_a_price_that_changes_moves_what_may_move() -> None:
    scenario = fleet(workloads=WEB, events="events: [{at: 1h, change: {name: iowa, price: 9}}]")
    run = simulated(scenario, BACK)
    assert told(run, "changed", "moved")[:2] == [
        (3600.0, "iowa: price 9"),
        (3600.0, "shop/web: 2 from iowa to frankfurt"),
    ]
    assert run.after == {"berlin": 6, "frankfurt": 2}
    assert run.last_price == 6 * 3 + 2 * 5


def test_a_cluster_that_is_removed_is_left_and_one_that_is_added_is_used() -> None:
    scenario = fleet(
        workloads="workloads: [{name: web, replicas: 14, cpu: 1}]",
        events="""
events:
- {at: 1h, add: {name: oslo, provider: own, cpu: 20, price: 2}}
- {at: 2h, remove: iowa}
""",
    )
    run = simulated(scenario, OWN_FIRST)
    assert told(run, "added", "removed", "placed")[1:] == [
        (3600.0, "oslo: provider own, cpu 20, price 2"),
        (7200.0, "iowa"),
        (7200.0, "default/web: berlin 6, oslo 8"),
    ]


def test_who_has_no_room_waits_and_gets_it_when_it_is_there() -> None:
    scenario = fleet(
        workloads="""
workloads:
- {name: early, replicas: 20, cpu: 1, lasts: 1h}
- {name: late, replicas: 10, cpu: 1, at: 10min}
"""
    )
    run = simulated(scenario, OWN_FIRST)
    assert told(run, "waits") == [(600.0, "default/late: there is room for 4 of 10 replicas")]
    (placed,) = [(at, text) for at, text in told(run, "placed") if "late" in text]
    # with the next status of a cluster, and a pause for who was tried in vain
    assert placed[1] == "default/late: berlin 6, iowa 4"
    assert 3600.0 <= placed[0] <= 3640.0
    assert run.most_unplaced == 10


def test_the_placements_alone_decide_without_policies() -> None:
    run = simulated(fleet(workloads="workloads: [{name: web, replicas: 8, cpu: 1}]"), None)
    assert run.before == {"berlin": 2, "frankfurt": 2, "iowa": 4}


def test_replicas_that_never_rest_are_given_up() -> None:
    restless = "score 1 if cluster.has == 0\ndivide best first\nrebalance"
    run = simulated(fleet(workloads="workloads: [{name: web, replicas: 2, cpu: 1}]"), restless)
    assert run.restless


def test_it_lasts_as_long_as_is_asked() -> None:
    assert simulated(fleet(workloads=WEB, duration=7200.0), OWN_FIRST).seconds == 7200.0
    assert simulated(fleet(workloads=WEB), OWN_FIRST).seconds == 30.0, "until the replicas run"


def test_a_shorter_run_goes_on_as_it_is() -> None:
    too_many, some_of_them = "workloads: [{name: web, replicas: 30, cpu: 1}]", f"{OWN_FIRST} partly"
    run = simulated(fleet(workloads=too_many), some_of_them)
    longer = simulated(fleet(workloads=too_many, duration=9000.0), some_of_them)
    assert extended(run, 9000.0) == replace(longer, decisions=run.decisions)


# --- laws ------------------------------------------------------------------------------------------------

REGIONS = ("eu", "us")
CLUSTERS = st.lists(
    st.fixed_dictionaries(
        {
            "region": st.sampled_from(REGIONS),
            "provider": st.sampled_from(["own", "aws"]),
            "price": st.integers(1, 9),
            "cpu": st.integers(1, 12),
        }
    ),
    min_size=2,
    max_size=4,
).map(lambda forms: [{"name": f"c{place}", **form} for place, form in enumerate(forms)])
WORKLOADS = st.lists(
    st.fixed_dictionaries(
        {"replicas": st.integers(1, 9), "cpu": st.integers(1, 2), "at": st.sampled_from(["0s", "7min", "1h"])},
        optional={"lasts": st.sampled_from(["20min", "3h"]), "priority": st.integers(0, 2)},
    ),
    min_size=1,
    max_size=4,
).map(lambda forms: json.dumps({"workloads": [{"name": f"w{place}", **form} for place, form in enumerate(forms)]}))
POLICIES = st.sampled_from(
    [OWN_FIRST, BACK, "divide by cluster.room partly", "divide evenly\nrebalance at most 1 rest 2min"]
)


AT = st.sampled_from(["0s", "10min", "1h", "90min"])
FOR = st.sampled_from(["2min", "40min"])


def event(names: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.fixed_dictionaries({"at": AT, "lose": names, "for": FOR}),
        st.fixed_dictionaries(
            {"at": AT, "change": st.fixed_dictionaries({"name": names, "price": st.integers(1, 9)})},
        ),
        st.fixed_dictionaries(
            {"at": AT, "change": st.fixed_dictionaries({"name": names, "taints": st.just(["x=y:NoExecute"])})},
        ),
        st.fixed_dictionaries(
            {"at": AT, "scale": st.fixed_dictionaries({"workload": st.just("w0"), "replicas": st.integers(0, 9)})},
        ),
    )


def written(events: list[dict[str, Any]]) -> str:
    return json.dumps({"events": events}) if events else ""


Story: TypeAlias = tuple[list[dict[str, Any]], str, list[dict[str, Any]]]
"""Clusters, the file of the workloads, and events."""


@st.composite
def stories(draw: st.DrawFn) -> Story:
    clusters = draw(CLUSTERS)
    names = st.sampled_from([str(each["name"]) for each in clusters])
    return clusters, draw(WORKLOADS), draw(st.lists(event(names), max_size=4))


@settings(max_examples=25, deadline=None)
@given(stories(), POLICIES)
def test_what_runs_fits_and_adds_up(story: Story, policy: str) -> None:
    clusters, workloads, events = story
    happens = written(events)
    run = simulated(fleet(clusters, workloads, happens, duration=6 * 3600.0), policy)
    cores = {each["name"]: each["cpu"] for each in clusters}
    for sample in run.samples:
        assert all(0 < count <= cores[name] for name, count in sample.running.items())
        assert 0 <= sample.placed <= sample.wanted
    assert sum(run.after.values()) + run.unplaced == run.samples[-1].wanted
    assert sum(each.replicas for each in run.happenings if each.kind == "evicted") == run.evicted
    assert sum(each.replicas for each in run.happenings if each.kind == "moved") == run.moved
    again = simulated(fleet(clusters, workloads, happens, duration=6 * 3600.0), policy)
    assert run == again, "chance has no part in it"


@settings(max_examples=25, deadline=None)
@given(stories(), POLICIES)
def test_looks_that_repeat_others_change_nothing(story: Story, policy: str) -> None:
    clusters, workloads, events = story
    scenario = fleet(clusters, workloads, written(events), duration=6 * 3600.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Repeats, "state", lambda *asked: None)
        plain = simulated(scenario, policy)
    assert simulated(scenario, policy) == plain


@settings(max_examples=25, deadline=None)
@given(stories(), POLICIES)
def test_no_workload_is_down_by_our_hand(
    story: tuple[list[dict[str, Any]], str, list[dict[str, Any]]], policy: str
) -> None:
    """As long as no cluster is lost, whoever runs goes on: moves and evictions leave a replica that runs."""
    clusters, workloads, events = story
    kept = [each for each in events if "lose" not in each and each.get("scale", {}).get("replicas") != 0]
    run = simulated(fleet(clusters, workloads, written(kept), duration=4 * 3600.0), policy)
    tainted = any("taints" in each.get("change", {}) for each in kept)
    # an eviction ends after ten minutes even if there is no room elsewhere: that is Karmada's hand
    assert run.down_seconds == 0.0 or (tainted and run.most_unplaced > 0)
