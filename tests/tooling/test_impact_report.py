"""What `policyctl impact` says, as text and in Markdown, of made-up changes and of clusters that are full in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.cost import Cost, PriceSources
from kube_policy_scheduler.tooling.impact.evictions import Evictions, GivesWay
from kube_policy_scheduler.tooling.impact.queue_changes import QueueChange
from kube_policy_scheduler.tooling.impact.replay import Change, Placement, Reason, Replay, State
from kube_policy_scheduler.tooling.impact.report import (
    Figures,
    Impact,
    Load,
    Spread,
    cell,
    figures,
    headline,
    lines,
    markdown,
)
from kube_policy_scheduler.tooling.text_table import GREEN, RED, YELLOW, Terminal
from tests.tooling.worlds import things_of

FEW = Reason("filter", "filter node.free.cpu < 3", "<new>.policy:1:1", "rejects a")
BUSY = Reason("score", 'score 1 if node.name == "a|b"', "new.policy:2:1", "+1 for b over a")
EARLIER = Reason("earlier", "pods before it moved")


def on(node: str, *devices: str) -> Placement:
    return Placement(State.PLACED, node, devices=devices)


NOWHERE, HELD = Placement(State.UNSCHEDULABLE), Placement(State.HELD)
CHANGES = (
    Change("shop/other", HELD, NOWHERE, EARLIER),
    Change("shop/devices", on("a", "gpu-0"), on("a", "gpu-1"), EARLIER),
    Change("shop/moved", on("a"), on("b"), BUSY),
    Change("shop/gained", NOWHERE, on("a"), FEW),
    Change("shop/lost", on("a"), NOWHERE, FEW),
)
STATE = cluster_state([])
NOTHING = Replay(STATE, STATE, decided=9, placed=(4, 4), as_was=0, were=0, changes=(), left=0)
LOAD = Load("cpu", 0.5, 0.25, 0.25, 1, (0.0, 0.5))
FIGURES = Figures((LOAD,), (), ())
CALM = Impact("old", "new", NOTHING, FIGURES, FIGURES)
GOES = (GivesWay("shop/a0", "a", "shop/new", "a", "b"), GivesWay("shop/a1", "a", "", why="its `max` is 2"))
BUSTLE = Impact(
    "old",
    "new",
    replace(NOTHING, placed=(4, 5), as_was=2, were=3, changes=CHANGES, left=1),
    replace(
        FIGURES,
        zones=(("z1", 4), ("z2", 0)),
        spreads=(Spread("", 1, 1, 1), Spread("leaves", 3, 2, 2), Spread("same", 1, 1, 1)),
        price=Cost(2.5, 1, 0),
    ),
    Figures(
        (Load("cpu", 0.25, 0.25, 0.0, 0, (0.25, 0.25)),),
        (("z1", 2), ("z2", 2)),
        (Spread("", 2, 2, 1), Spread("same", 1, 1, 1)),
        Cost(1200.0, 1, 1),
    ),
    prices=PriceSources("EUR", (("prices.yaml", 1),), 1),
    evictions=Evictions((GOES[0],), (GOES[1], replace(GOES[1], pod="shop/a2")), pending=1, left=1),
    queues=(QueueChange("a", "weight", "1", "2"), QueueChange("b", "max cpu", "5", "3", "2 pods over", 2)),
)
FORMS: Mapping[str, Callable[[int], Iterator[str]]] = {
    "text": lambda most: lines(BUSTLE, to=Terminal(), most=most),
    "markdown": lambda most: markdown(BUSTLE, most=most),
}


@pytest.mark.parametrize("most", [1, 20])
@pytest.mark.parametrize("form", FORMS)
def test_how_it_reads(form: str, most: int, snapshot: SnapshotAssertion) -> None:
    assert "\n".join(FORMS[form](most)) == snapshot


@pytest.mark.parametrize(("form", "cut"), [("text", [4, 2, 1, 1, 0]), ("markdown", [3, 2, 1, 1, 0])])
def test_each_table_that_is_cut_says_so_and_no_other(form: str, cut: list[int]) -> None:
    """There are 5 changes, 3 pods that go or stay, and 2 each of queues and groups."""
    assert [sum(line.startswith("and ") for line in FORMS[form](most)) for most in range(1, 6)] == cut


@pytest.mark.parametrize(
    ("found", "colour"),
    [
        (CALM, GREEN),
        (replace(CALM, replay=replace(NOTHING, changes=CHANGES[:1])), YELLOW),
        (replace(CALM, replay=replace(NOTHING, changes=CHANGES[-1:])), RED),
    ],
)
def test_the_colour_of_the_first_line_says_how_bad_it_is(found: Impact, colour: str) -> None:
    assert next(lines(found, to=Terminal(colour=True), most=20)).startswith(colour)


def test_lost_pods_pods_over_a_quota_and_pods_that_are_evicted_stand_out() -> None:
    coloured = [
        line for line in lines(BUSTLE, to=Terminal(colour=True), most=20) if line.startswith((RED, YELLOW, GREEN))
    ]
    assert [line.split()[0].rpartition("m")[2] for line in coloured[2:]] == [
        "shop/lost",
        "b",
        "shop/a1",
        "shop/a2",
        "shop/a0",
    ]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (CALM, "nothing changes"),
        (replace(CALM, queues=BUSTLE.queues), "only amounts of queues change"),
        (replace(CALM, evictions=Evictions((), (), 0)), "nothing changes"),
        (replace(CALM, evictions=Evictions((), GOES, 1), queues=BUSTLE.queues), "2 would be evicted"),
        (replace(CALM, evictions=Evictions(GOES[:1], (), 1)), "1 would no longer be evicted"),
        (
            BUSTLE,
            "1 moves, 1 gets other devices on its node, 1 becomes unschedulable, 1 becomes schedulable, 1 waits for"
            " another reason, 2 would be evicted, 1 would no longer be evicted",
        ),
    ],
)
def test_the_headline_names_what_changes_and_nothing_else(found: Impact, said: str) -> None:
    assert headline(found) == f"9 pods decided again one after another: {said}"


def test_without_pods_no_limit_is_exceeded() -> None:
    limits = replace(CALM.limits, moved=0, moved_share=0.0, evicted=0)
    assert replace(CALM, replay=replace(NOTHING, decided=0), limits=limits).broken == []


def test_of_clauses_that_change_equally_many_pods_the_order_is_fixed() -> None:
    """The order of the pods says nothing."""
    for changes in (CHANGES, CHANGES[::-1]):
        found = replace(CALM, replay=replace(NOTHING, changes=changes)).causes()
        assert [each.clause for each, _ in found] == [EARLIER.clause, FEW.clause, BUSY.clause]


def test_of_a_calm_change_only_figures_are_listed() -> None:
    text = [*lines(replace(CALM, evictions=Evictions((), (), 0)), to=Terminal(), most=20)]
    assert text[0] == headline(CALM)
    assert text[1] == ""
    assert [line.split("  ")[0] for line in text[2:]] == [
        "",
        "cpu, fullest node",
        "cpu, mean",
        "cpu, deviation",
        "cpu, empty nodes",
        "pods with a node",
    ]


# --- the figures of a cluster ----------------------------------------------------------------------------


def figured(nodes: list[dict[str, Any]], pods: list[dict[str, Any]], by: str = "") -> Figures:
    cluster = cluster_state(things_of(nodes, pods)).cluster
    return figures(cluster, [f"uid-{at}" for at in range(len(pods))], by=by)


def test_without_nodes_there_is_nothing_to_measure() -> None:
    found = figured([], [{"cpu": 1}])
    assert found == Figures((), (), ())
    assert found.skew == 0


def test_shares_are_by_the_name_of_the_node_and_one_that_offers_nothing_is_empty() -> None:
    nodes = [{"name": "b", "cpu": 4}, {"name": "a", "cpu": 8}, {"name": "none", "cpu": 0}]
    (cpu, _) = figured(nodes, [{"cpu": 1, "node": "b"}, {"cpu": 4, "node": "a"}]).loads
    assert (cpu.shares, cpu.empty) == ((0.5, 0.25, 0.0), 1)


def test_groups_are_namespaces_or_those_of_a_label_and_zones_those_of_nodes_that_have_one() -> None:
    nodes = [{"name": "a", "cpu": 4, "zone": "z2"}, {"name": "b", "cpu": 4, "zone": "z1"}, {"name": "c", "cpu": 4}]
    hosts = "aac"
    pods = [{"cpu": 1, "node": host, "labels": {"app": app}} for host, app in zip(hosts, "yyx", strict=True)]
    found = figured(nodes, [*pods, {"cpu": 1, "labels": {"app": "y"}}], by="app")
    assert found.zones == (("z1", 0), ("z2", 2))
    assert found.spreads == (Spread("x", 1, 1, 1), Spread("y", 2, 1, 2))
    assert figured(nodes, pods).spreads == (Spread("default", 3, 2, 2),)


def test_the_price_is_that_of_the_nodes_in_use() -> None:
    nodes = [{"name": name, "cpu": 4, "price": 3} for name in "ab"]
    assert figured(nodes, [{"cpu": 1, "node": "a"}]).price == Cost(3.0, 1, 0)
    assert figured(nodes, []).price == Cost(0.0, 0, 0)
    assert figured([{"name": "a", "cpu": 4}], [{"cpu": 1, "node": "a"}]).price is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`a < b` or <b>", "`a < b` or &lt;b>"),
        ("`<b>``", "`&lt;b>``"),
        ("``<b>`", "``&lt;b>`"),
        (r"\`<b>`", r"\`&lt;b>`"),
        ("`a | b`", r"`a \| b`"),
    ],
)
def test_a_cell_shows_code_as_it_is_and_begins_no_tag(text: str, shown: str) -> None:
    assert cell(text) == shown
