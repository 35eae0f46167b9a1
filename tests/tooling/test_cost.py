"""What nodes cost: price lists, prices on nodes, sums, and the language's `node.price` and `pod_price()`."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cli import cluster_sources
from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.prices import PRICE_KEY, pod_prices, price_of, prices
from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.price_list import PriceList, read_prices
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.cost import OF_NODES, cost, idle_hourly, in_use, money, set_prices
from tests.tooling.worlds import things_of

LIST = """\
currency: EUR
prices:
- {instanceType: m, hourly: 0.2}
- {instanceType: m, capacityType: spot, hourly: 0.07}
- {instanceType: m, hourly: 9}
- {labels: {rack: r1}, hourly: 0.11}
"""
TYPE, SPOT = "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"


def price_list(text: str = LIST) -> PriceList:
    return read_prices(Source("prices.yaml", text))


@pytest.mark.parametrize(
    ("labels", "hourly"),
    [
        ({TYPE: "m"}, 0.2),
        ({TYPE: "m", SPOT: "spot", "x": "y"}, 0.07),
        ({TYPE: "m", SPOT: "on-demand"}, 0.2),
        ({"rack": "r1"}, 0.11),
        ({TYPE: "m", "rack": "r1"}, 0.2),
        ({TYPE: "x"}, None),
        ({}, None),
    ],
)
def test_the_entry_with_most_labels_applies_and_of_several_the_first(
    labels: dict[str, str], hourly: float | None
) -> None:
    assert price_list().hourly(labels) == hourly


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prices: [{instanceType: m}]", "hourly"),
        ("prices: [{hourly: 0}]", "a price per hour above 0"),
        ("prices: [{hourly: -1}]", "a price per hour above 0"),
        ("prices: [{hourly: .inf}]", "a price per hour above 0"),
        ("prices: [{hourly: .nan}]", ""),
        ("prices: [{hourly: dear}]", "a price per hour above 0"),
        ("prices: [{hourly: 1, instance_type: m}]", "unknown key `instance_type`"),
        ("currency: dollars\nprices: []", "a currency such as USD"),
        ("[]", ""),
    ],
)
def test_a_wrong_price_list_is_an_error_with_its_line(text: str, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        price_list(text)
    assert any(said in found.message + found.help for found in caught.value.diagnostics), caught.value.diagnostics


@pytest.mark.parametrize(
    ("annotation", "label", "hourly"),
    [
        ("0.25", None, 0.25),
        (None, "0.25", 0.25),
        ("1", "2", 1.0),
        ("dear", "2", 2.0),
        ("0", None, None),
        ("0.000", None, None),
        ("-1", None, None),
        ("nan", None, None),
        ("inf", None, None),
        ("1e300", None, None),
        ("9" * 400, None, None),
        (" 1", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_what_is_not_a_price_above_zero_is_missing(
    annotation: str | None, label: str | None, hourly: float | None
) -> None:
    given = {"annotations": annotation, "labels": label}
    meta = {"name": "a", **{key: {PRICE_KEY: text} for key, text in given.items() if text is not None}}
    found = price_of(msgspec.convert({"metadata": meta}, objects.Node))
    assert math.isnan(found) if hourly is None else found == hourly


def node(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "cpu": 4, "mem": "8Gi", **more}


def test_a_list_comes_before_the_node_and_both_before_what_is_measured() -> None:
    nodes = [
        node("a", labels={TYPE: "m"}, price=5), node("b", price=3), node("c"), node("d"), node("e", labels={TYPE: "m"}),
    ]  # fmt: skip
    things = things_of(nodes, [])
    found = set_prices(things, [price_list()], [("opencost", {"a": 7.0, "b": 7.0, "c": 0.5, "d": 0.0})])
    assert [price_of(thing) for thing in things[:3]] == [0.2, 3, 0.5]
    assert math.isnan(price_of(things[3]))
    assert found.currency == "EUR"
    assert dict(found.nodes) == {"prices.yaml": 2, OF_NODES: 1, "opencost": 1}
    assert (found.known, found.unknown) == (4, 1)
    assert found.sentence().endswith("; 1 node without a price")


def test_sums_leave_out_what_is_not_known() -> None:
    daemon = {"cpu": 1, "node": "c", "owner": "DaemonSet/x"}
    pods = [{"cpu": 1, "node": "a"}, {"cpu": 4, "node": "b"}, daemon]
    cluster = cluster_state(things_of([node("a", price=1), node("b"), node("c", price=2)], pods)).cluster
    whole, used = cost(cluster), cost(cluster, among=in_use(cluster))
    assert (whole.hourly, whole.monthly, whole.nodes, whole.unknown) == (3, 2190, 2, 1)
    assert (used.hourly, used.nodes, used.unknown) == (1, 1, 1)
    assert idle_hourly(cluster) == 0.75 * 1 + 0.75 * 2
    assert money(3, "USD") == "3.00 USD per hour, 2,190 USD per month"


def test_a_pod_pays_for_its_largest_share_and_a_price_changes_with_its_node() -> None:
    (first, second), (pod,) = things_of([node("a", price=1), node("b")], []), things_of([], [{"cpu": 1, "mem": "4Gi"}])
    cluster = Cluster()
    for one in (first, second):
        cluster.set_node(one)
    template = cluster.templates.pod(pod).template
    assert pod_prices(cluster.nodes, template)[0] == 0.5
    assert math.isnan(pod_prices(cluster.nodes, template)[1])
    (dearer,) = things_of([node("a", price=3)], [])
    cluster.set_node(dearer)
    assert prices(cluster.nodes)[0] == 3


# --- the commands ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    things = things_of(
        [node("a", labels={TYPE: "m"}), node("b", price=3), node("c")],
        [{"cpu": 1, "node": "b", "owner": "ReplicaSet/x"}, {"cpu": 4}, {"cpu": 4}, {"cpu": 4}],
    )
    kinds = {objects.Node: "Node", objects.Pod: "Pod"}
    items = [{"apiVersion": "v1", "kind": kinds[type(one)], **msgspec.to_builtins(one)} for one in things]
    Path("c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    Path("prices.yaml").write_text(LIST)
    Path("a.policy").write_text("filter fits(cpu, mem)\nscore -1 * (node.price ?? 100)\n")
    Path("b.policy").write_text("filter fits(cpu, mem)\nscore node.price ?? 0\n")
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert run([*arguments, "--format", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_capacity_says_what_nodes_cost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("capacity", "--cluster", "c.json", "--policies", "a.policy", "--prices", "prices.yaml")
    found = printed(capsys, *asked, "--removable", "--pending", code=1)
    assert found["price"]["hourly"] == 3.2
    assert found["price"]["monthly"] == pytest.approx(2336)
    assert found["price"]["sources"]["nodes"] == [["prices.yaml", 1], [OF_NODES, 1]]
    assert found["price"]["sources"]["unknown"] == 1
    best = found["pending"]["needed"][0]
    assert (best["shape"]["like"], best["hourly"]) == ("a", pytest.approx(0.2 * best["nodes"]))
    assert found["removable"]["hourly"] is not None


def test_impact_compares_the_price_of_nodes_in_use(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("impact", "b.policy", "a.policy", "--cluster", "c.json", "--prices", "prices.yaml")
    found = printed(capsys, *asked, "--max-unschedulable", "9")
    assert found["prices"]["currency"] == "EUR"
    assert {row["name"] for row in found["figures"]} >= {
        "hourly price of nodes in use",
        "monthly price of nodes in use",
    }
    assert found["before"]["price"]["unknown"] == found["after"]["price"]["unknown"] == 1


def test_simulate_says_the_price_over_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "simulate", "a.policy", "--cluster", "c.json", "--prices", "prices.yaml")
    assert found["variants"][0]["hourlyPriceMean"]["mean"] > 0
    assert found["prices"]["unknown"] == 1


def test_without_prices_nothing_is_said_of_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("c.json").read_text().replace(PRICE_KEY, "other")
    Path("c.json").write_text(text)
    found = printed(capsys, "capacity", "--cluster", "c.json", "--removable")
    assert found["price"] is None
    assert found["removable"]["hourly"] is None
    assert run(["impact", "b.policy", "a.policy", "--cluster", "c.json", "--max-unschedulable", "9"]) == 0
    assert "price" not in capsys.readouterr().out.replace("node.price", "")


@pytest.mark.parametrize("text", ["score node.price ?? 0", "score pod_price() ?? 0"])
def test_doctor_says_when_no_price_is_known(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.policy").write_text(f"{text}\n")
    run(["doctor", "--policies", "a.policy", "--cluster", "c.json", "--format", "json"])
    (one,) = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["check"] == "prices"]
    assert (one["status"], one["text"]) == ("ok", "on 1 of 3 nodes; not on a, c")
    Path("c.json").write_text(Path("c.json").read_text().replace(PRICE_KEY, "other"))
    run(["doctor", "--policies", "a.policy", "--cluster", "c.json", "--format", "json"])
    (one,) = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["check"] == "prices"]
    assert one["status"] == "warning"
    assert PRICE_KEY in one["advice"]


@pytest.mark.parametrize("given", ["none.yaml", "a.policy", "http://127.0.0.1:9"])
def test_prices_that_cannot_be_read_are_an_error(folder: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["capacity", "--cluster", "c.json", "--removable", "--prices", given]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_opencost_states_prices(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(url: str, queries: Any) -> cluster_sources.Measured:
        now = time.time()
        (query,) = queries
        series = [Series({"node": name}, value, now) for name, value in (("b", 9.0), ("c", 0.4), ("gone", 1.0))]
        return cluster_sources.Measured(Signals.of([Reading(query.promql, series, now, now)]), {}, {})

    monkeypatch.setattr(cluster_sources, "measured", measured)
    found = printed(capsys, "capacity", "--cluster", "c.json", "--removable", "--prices", "http://p:9090")
    assert found["price"]["hourly"] == 3.4
    assert found["price"]["sources"]["nodes"][0] == ["node_total_hourly_cost of http://p:9090", 1]
