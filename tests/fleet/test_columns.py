"""Columns that are made of earlier ones say the same as columns that are made afresh."""

from __future__ import annotations

from hypothesis import given

from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.fleet.columns import FleetColumns
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import Fleet, Workload
from tests.fleet.fleets import policies
from tests.fleet.worlds import FLEETS, WORKLOADS, cluster

RULES = policies(
    'score 10 if cluster.region == "eu"\nscore cluster.free.cpu / 1core\nfilter cluster.region != "as"\n'
    "divide over region target eu 60% then best first"
)


@given(WORKLOADS, FLEETS, FLEETS)
def test_a_decision_by_changed_columns_is_that_by_new_ones(asked: Workload, before: Fleet, after: Fleet) -> None:
    changed = FleetColumns(after.clusters, FleetColumns(before.clusters))
    decided = RULES.decide(asked, after, Given(columns=changed))
    assert decided == RULES.decide(asked, after, Given(columns=FleetColumns(after.clusters)))


def test_only_rows_that_differ_are_made_again() -> None:
    first = [cluster("a", 1), cluster("b", 2)]
    columns = FleetColumns(first)
    tainted = cluster("b", 9, taints=(TaintKey("gpu", "", "NoSchedule"),))
    changed = FleetColumns([cluster("a", 7), tainted], columns)
    assert changed.cluster is columns.cluster
    assert [len(info.taints) for info in changed.cluster.nodes.infos] == [0, 1]
    assert FleetColumns([cluster("a", 1)], changed).cluster is not columns.cluster
