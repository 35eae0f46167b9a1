"""The table in deploy/FLEET.md: what a placement says, what a policy says instead, and what is the same in both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from msgspec.structs import replace

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.karmada import objects
from kube_policy_scheduler.fleet.karmada.reading import placement
from kube_policy_scheduler.fleet.model import Fleet, Placement
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.policy.policy_set import load
from tests.fleet.fleets import cluster, workload
from tests.fleet.worlds import DYNAMIC

PAGE = (Path(__file__).parents[2] / "deploy/FLEET.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Coming from Karmada's policies\n")[2].partition("\n## ")[0]
FLEET = Fleet(
    (
        cluster("berlin", 40, region="eu", labels={"tier": "gold"}),
        cluster("frankfurt", 30, region="eu"),
        cluster("iowa", 50, region="us"),
    )
)


class Row(NamedTuple):
    """A row of the tables."""

    karmada: str
    policy: str
    differs: str


ROWS = [
    Row(*line.strip("| ").split(" | "))
    for line in re.findall(r"(?m)^\|.*\|$", SECTION)
    if "---" not in line and "what differs" not in line
]
SAME = [row for row in ROWS if row.differs.startswith("the same")]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def compiled(*statements: str) -> FleetPolicies:
    """Return a policy of Deployments; it has no findings."""
    loaded = load(
        [Source("row.policy", "\n".join(('for workloads where workload.kind == "Deployment"', *statements, "")))]
    )
    assert not loaded.diagnostics, [each.message for each in loaded.diagnostics]
    assert loaded.policy_set is not None
    return loaded.policy_set.fleet


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.karmada)
def test_each_row_names_statements_that_have_no_findings(row: Row) -> None:
    statements = code(row.policy)
    if not any(each.startswith("divide") for each in statements):
        statements += ["score -(cluster.price ?? 9)", "divide best first"]
    compiled(*statements)


@pytest.mark.parametrize("row", SAME, ids=lambda row: row.karmada)
@pytest.mark.parametrize("replicas", [1, 7, 24])
def test_what_is_the_same_decides_the_same(row: Row, replicas: int) -> None:
    (written,), statements = code(row.karmada), code(row.policy)
    asked = placement(yaml.safe_load(written))
    if asked.scheduling is None:
        asked = replace(asked, scheduling=DYNAMIC)
        rest = Placement(scheduling=DYNAMIC)  # the row is about clusters; how many replicas they get is not its matter
    else:
        rest = Placement()
    expected = place(workload(replicas, placement=asked), FLEET)
    assert expected.placed
    assert compiled(*statements).decide(workload(replicas, placement=rest), FLEET).targets == expected.targets


def test_each_part_of_a_placement_has_a_row() -> None:
    told = set(re.findall(r"\w+", " ".join(row.karmada for row in ROWS)))
    assert set(objects.Placement.__struct_encode_fields__) <= told
