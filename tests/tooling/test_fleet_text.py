"""A fleet as text is read as the fleet that it was, as far as short forms say it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.karmada.reading import cluster, workload
from kube_policy_scheduler.fleet.model import Fleet
from kube_policy_scheduler.tooling.fleet_text import FleetAsText, bound_in, fleet_as_text
from kube_policy_scheduler.tooling.tester.written_fleet import read_fleet_text
from tests.fleet.fleets import NOW, policies
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC, raw_binding, raw_cluster

CLUSTERS = [
    msgspec.convert(
        raw_cluster(
            f"c{number}",
            cpu=8 * number,
            region=("eu", "us")[number % 2],
            provider="own",
            zones=["z1", "z2"][: 1 + number % 2],
            labels={"tier": "gold"},
            annotations={"policy-scheduler/hourly-price": f"0.0{number}", "note": "x" * 1000},
        ),
        KarmadaCluster,
    )
    for number in (1, 2, 3)
]


def bound(*raw: Any) -> list[tuple[ResourceBinding, Any]]:
    return bound_in([msgspec.convert(each, ResourceBinding) for each in raw], {})[0]


WEB = raw_binding("web", replicas=5, placement=DYNAMIC)
OTHER = raw_binding("other", replicas=2, placement=DUPLICATED | {"clusterAffinity": {"clusterNames": ["c1"]}})


def text(*raw: Any, name: str = "", most: int = 60_000) -> FleetAsText:
    return fleet_as_text(map(cluster, CLUSTERS), bound(*raw), now=NOW, name=name, most=most)


def test_what_is_decided_is_the_same() -> None:
    made = text(WEB)
    read = read_fleet_text(parse_document(Source("fleet.yaml", made.text)), now=NOW)
    before = Fleet(tuple(map(cluster, CLUSTERS)))
    compiled = policies("score -(cluster.price ?? 9)\ndivide best first")
    asked = workload(msgspec.convert(WEB, ResourceBinding))
    theirs = compiled.decide(asked, before, Given(NOW))
    ours = compiled.decide(read.written.workload, read.written.fleet, Given(NOW))
    assert theirs.placed
    assert dict(ours.targets) == dict(theirs.targets)
    assert {name: each.room for name, each in ours.verdicts.items()} == {
        name: each.room for name, each in theirs.verdicts.items()
    }
    assert made.left_out == ()


def test_facts_of_clusters_are_kept_and_long_annotations_are_not() -> None:
    read = read_fleet_text(parse_document(Source("fleet.yaml", text(WEB).text)), now=NOW)
    for ours, theirs in zip(read.written.fleet.clusters, map(cluster, CLUSTERS), strict=True):
        assert (ours.name, ours.region, ours.provider, ours.zones, ours.labels) == (
            theirs.name, theirs.region, theirs.provider, theirs.zones, theirs.labels,
        )  # fmt: skip
        assert float(ours.annotations["policy-scheduler/hourly-price"]) == float(
            theirs.annotations["policy-scheduler/hourly-price"]
        )
        assert ours.allocatable == theirs.allocatable
        assert ours.ready == theirs.ready


def test_the_workload_that_is_named_is_asked_about_and_its_placement_kept() -> None:
    value = parse_document(Source("fleet.yaml", text(WEB, OTHER, name="shop/other").text)).value
    assert value["workload"]["name"] == "other"
    assert value["workload"]["placement"]["clusterAffinity"] == {"clusterNames": ["c1"]}
    with pytest.raises(LookupError, match="no binding places a workload `gone`"):
        text(WEB, name="gone")


def test_of_more_than_the_text_may_have_the_rest_is_named() -> None:
    assert text(WEB, most=600).left_out != ()
    assert len(text(WEB, most=600).text) <= 600


def test_a_fleet_without_workloads_begins_with_an_example() -> None:
    assert parse_document(Source("fleet.yaml", text().text)).value["workload"] == {
        "name": "web", "replicas": 3, "cpu": 1,
    }  # fmt: skip
