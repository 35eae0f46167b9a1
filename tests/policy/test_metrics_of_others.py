"""Metrics that are not of nodes: one value of the cluster, or of what the pod or the node names."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from tests.lang.clusters import NOW, cluster, decide, feasible, node, place, pod, policy, scores

PRICE = 'metric price = promql("price") for cluster stale after 1min default 30\n'
BUDGET = 'metric budget = promql("budget") stale after 1min default 1 by tenant as pod.label.tenant\n'
WATTS = 'metric watts = promql("watts") by rack as node.label.rack\n'
RED, BLUE = {"tenant": "red"}, {"tenant": "blue"}


def signals(*, age: float = 0.0, price: float | None = None, **by_label: Mapping[str, float]) -> Signals:
    """Return answers, `age` seconds old: `budget={"red": 3}` is about tenants, `watts` about racks."""
    at, labels = NOW - age, {"budget": "tenant", "watts": "rack"}
    made = [
        Reading(query, tuple(Series({labels[query]: key}, value, at) for key, value in values.items()), at, at)
        for query, values in by_label.items()
    ]
    if price is not None:
        made.append(Reading("price", (Series({}, price, at),), at, at))
    return Signals.of(made)


@pytest.mark.parametrize(
    ("found", "held"),
    [
        (signals(price=120), True),
        (signals(price=80), False),
        (signals(price=120, age=59), True),
        (signals(price=120, age=61), False),
        (Signals.EMPTY, False),
    ],
)
def test_hold_follows_a_metric_of_the_cluster(found: Signals, held: bool) -> None:
    nodes = cluster(node("a"))
    expensive = policy(PRICE + 'hold if price > 100 else "expensive"')

    assert (expensive.hold_reason(Frame(pod(nodes, "p"), nodes, NOW, signals=found)) == "expensive") is held


@pytest.mark.parametrize(
    ("labels", "there", "fits"),
    [(RED, 2, True), (RED, 3, False), (BLUE, 0, True), (BLUE, 1, False), ({"tenant": "new"}, 1, False), ({}, 0, True)],
)
def test_limit_follows_the_value_of_the_pods_own_label(labels: dict[str, str], there: int, fits: bool) -> None:
    nodes = cluster(node("a"))
    place(nodes, [("a", labels)] * there)
    quota = policy(BUDGET + "limit count() by pod.label.tenant to budget")

    result = decide(quota, pod(nodes, "p", labels=labels), nodes, signals=signals(budget={"red": 3, "blue": 1}))

    assert (result.pre_filtered.rejection is None) is fits


def test_require_rejects_where_the_value_is_too_low() -> None:
    nodes = cluster(node("a"))
    solvent = policy(BUDGET + 'require budget > 1 else "no budget"')
    found = signals(budget={"red": 3, "blue": 1})

    assert decide(solvent, pod(nodes, "p", labels=RED), nodes, signals=found).pre_filtered.rejection is None
    rejected = decide(solvent, pod(nodes, "q", labels=BLUE), nodes, signals=found).pre_filtered.rejection
    assert rejected is not None
    assert rejected.reasons == ("no budget",)


def test_filter_and_score_read_the_value_that_each_node_names() -> None:
    nodes = cluster(
        *(node(name, labels={"rack": rack}) for name, rack in (("a", "1"), ("b", "2"), ("c", "3"))), node("d")
    )
    cool = policy(WATTS + "filter watts ?? 0 < 50\nscore watts as heat")

    result = decide(cool, pod(nodes, "p"), nodes, signals=signals(watts={"1": 10, "2": 60, "3": 40}))

    assert feasible(result, nodes) == ["a", "c", "d"]
    assert scores(result, nodes, "heat") == {"a": 10, "c": 40, "d": 0}


def test_new_nodes_and_new_answers_are_seen() -> None:
    nodes = cluster(node("a", labels={"rack": "1"}))
    cool = policy(WATTS + "filter watts ?? 0 < 50")

    def fits(**watts: float) -> list[str]:
        found = signals(watts={rack[1:]: value for rack, value in watts.items()})
        return feasible(decide(cool, pod(nodes, "p"), nodes, signals=found), nodes)

    assert fits(r1=10, r2=60) == ["a"]
    nodes.set_node(node("b", labels={"rack": "2"}))
    assert fits(r1=10, r2=60) == ["a"]
    assert fits(r1=60, r2=10) == ["b"]
    nodes.set_node(node("a", labels={"rack": "2"}))
    assert fits(r1=60, r2=10) == ["a", "b"]


def test_a_label_value_that_takes_the_place_of_another_is_not_taken_for_it() -> None:
    nodes = cluster(node("a", labels={"rack": "1"}), node("b", labels={"rack": "2"}))
    hot, found = policy(WATTS + "score watts ?? 0 as heat"), signals(watts={"1": 10, "2": 20, "3": 30})

    def heat() -> dict[str, float]:
        return scores(decide(hot, pod(nodes, "p"), nodes, signals=found), nodes, "heat")

    assert heat() == {"a": 10, "b": 20}
    nodes.set_node(node("a", labels={"rack": "2"}))
    nodes.set_node(node("b", labels={"rack": "3"}))
    assert heat() == {"a": 20, "b": 30}


@given(
    racks=st.lists(st.sampled_from(["1", "2", "3", None]), min_size=1, max_size=8),
    watts=st.dictionaries(st.sampled_from(["1", "2", "3", "4"]), st.integers(0, 100)),
    age=st.sampled_from([0.0, 119.0, 121.0]),
)
def test_the_column_equals_a_dictionary_lookup(racks: list[str | None], watts: dict[str, int], age: float) -> None:
    made = [node(f"n{at}", labels={"rack": rack} if rack else {}) for at, rack in enumerate(racks)]
    nodes = cluster(*made)

    result = decide(
        policy(WATTS + "score watts ?? -1 as heat"), pod(nodes, "p"), nodes, signals=signals(watts=watts, age=age)
    )

    fresh = watts if age < 120 else {}
    expected = {f"n{at}": fresh.get(rack, -1) if rack else -1 for at, rack in enumerate(racks)}
    assert scores(result, nodes, "heat") == expected


# --- predicted -------------------------------------------------------------------------------------------


def test_predicted_adds_the_new_pods_of_the_cluster_of_the_tenant_and_of_the_rack() -> None:
    nodes = cluster(*(node(name, labels={"rack": rack}) for name, rack in (("a", "1"), ("b", "1"), ("c", "2"))))
    nodes.place(pod(nodes, "old", labels=RED, status={"startTime": "2027-01-15T07:00:00Z"}), "a")
    text = "score predicted(price, 1) as all\nscore predicted(budget, 1) as own\nscore predicted(watts, 1) as rack"
    predicting = policy(PRICE.replace(" default 30", "") + BUDGET.replace(" default 1", "") + WATTS + text)
    found = signals(price=100, budget={"red": 200, "blue": 300}, watts={"1": 400, "2": 500})

    def values(labels: dict[str, str]) -> tuple[float, float, dict[str, float]]:
        result = decide(predicting, pod(nodes, "p", labels=labels), nodes, signals=found)
        one = {name: scores(result, nodes, name) for name in ("all", "own", "rack")}
        return one["all"]["a"], one["own"]["a"], one["rack"]

    assert values(RED) == (100, 200, {"a": 400, "b": 400, "c": 500})
    nodes.place(pod(nodes, "new", labels=RED), "a")
    nodes.place(pod(nodes, "newer", labels=BLUE), "c")
    nodes.place(pod(nodes, "newest", labels=BLUE), "b")
    assert values(RED) == (103, 201, {"a": 402, "b": 402, "c": 501})
    assert values(BLUE) == (103, 302, {"a": 402, "b": 402, "c": 501})
    nodes.displace("newer")
    assert values(BLUE) == (102, 301, {"a": 402, "b": 402, "c": 500})


# --- waking ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        PRICE + "require price < 100 as it",
        BUDGET + "limit count() by pod.label.tenant to budget as it",
        WATTS + "filter watts ?? 0 < 100 as it",
    ],
)
def test_new_answers_wake_the_pods_that_were_rejected_for_them(text: str) -> None:
    wakes = policy(text).profile.wakes["it"]

    assert wakes is not None
    assert ClusterEvent.SIGNALS in wakes
    assert ClusterEvent.CLOCK not in wakes


def test_a_policy_declares_what_its_queries_are_about() -> None:
    text = PRICE + BUDGET + WATTS + "score watts\nrequire price < 100\nlimit count() by pod.namespace to budget"

    assert {query.promql: (query.about.value, query.by) for query in policy(text).queries} == {
        "price": ("the cluster", None),
        "budget": ("values of a label", "tenant"),
        "watts": ("values of a label", "rack"),
    }


LATENCY = 'metric latency = promql("latency") stale after 1min by node, peer as pod.label.peer\n'


def latencies(found: Mapping[tuple[str, str], float], *, age: float = 0.0) -> Signals:
    """Return an answer about nodes and peers."""
    at = NOW - age
    series = tuple(Series({"node": where, "peer": peer}, value, at) for (where, peer), value in found.items())
    return Signals.of([Reading("latency", series, at, at)])


@given(
    found=st.dictionaries(
        st.tuples(st.sampled_from(["a", "b", "c", "gone"]), st.sampled_from(["db", "cache", ""])),
        st.integers(0, 100),
    ),
    peer=st.sampled_from(["db", "cache", "new", None]),
    age=st.sampled_from([0.0, 59.0, 61.0]),
)
def test_a_metric_by_two_labels_is_of_the_node_and_of_the_pods_text(
    found: dict[tuple[str, str], int], peer: str | None, age: float
) -> None:
    nodes = cluster(*(node(name) for name in "abc"))
    near = policy(LATENCY + "score latency ?? -1 as near")
    me = pod(nodes, "p", labels={"peer": peer} if peer is not None else {})

    result = decide(near, me, nodes, signals=latencies(found, age=age))

    known = found if age < 60 and peer is not None else {}
    assert scores(result, nodes, "near") == {name: known.get((name, peer or ""), -1) for name in "abc"}


def test_a_metric_by_two_labels_follows_nodes_and_answers() -> None:
    nodes = cluster(node("a"), node("b"))
    near = policy(LATENCY + "filter latency ?? 100 < 50")
    me = pod(nodes, "p", labels={"peer": "db"})

    def fits(found: Mapping[tuple[str, str], float]) -> list[str]:
        return feasible(decide(near, me, nodes, signals=latencies(found)), nodes)

    answer = {("a", "db"): 10.0, ("c", "db"): 10.0, ("b", "cache"): 1.0}
    assert fits(answer) == ["a"]
    nodes.set_node(node("c"))
    assert fits(answer) == ["a", "c"]
    nodes.remove_node("a")
    assert fits(answer) == ["c"]
    assert fits({("b", "db"): 10.0}) == ["b"]


def test_a_node_of_a_pair_is_found_by_its_address_and_two_answers_that_differ_are_none() -> None:
    address = {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}
    nodes = cluster(node("a", status=address), node("b"))
    near = policy(LATENCY + "score latency ?? -1 as near")
    me = pod(nodes, "p", labels={"peer": "db"})

    def near_to(found: Mapping[tuple[str, str], float]) -> dict[str, float]:
        return scores(decide(near, me, nodes, signals=latencies(found)), nodes, "near")

    assert near_to({("10.0.0.1:9100", "db"): 5, ("b", "db"): 7}) == {"a": 5, "b": 7}
    assert near_to({("10.0.0.1:9100", "db"): 5, ("a", "db"): 7}) == {"a": -1, "b": -1}
