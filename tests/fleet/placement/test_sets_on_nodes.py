"""Whole sets of components on nodes: as if each pod were put on the first node that has room."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.fleet.model import Component, Placement, ResourceGrade, SpreadConstraint
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.fleet.placement.room import PODS_PER_NODE, sets_on_nodes
from tests.fleet.worlds import AGGREGATED, CORE, cluster, fleet, workload


def one_by_one(components: list[Component], grades: list[ResourceGrade], most: int) -> int:
    nodes = [[grade.least.get("cpu", 0), PODS_PER_NODE] for grade in grades for _ in range(grade.count)]
    for done in range(most):
        for each in components:
            for _ in range(each.replicas):
                cpu = each.requests.get("cpu", 0)
                able = next((node for node in nodes if node[0] >= cpu and node[1] > 0), None)
                if able is None:
                    return done
                able[0] -= cpu
                able[1] -= 1
    return most


CPU = st.integers(0, 9).map(lambda cores: {"cpu": cores * CORE})
COMPONENTS = st.lists(st.builds(Component, st.just("c"), st.integers(0, 5), CPU), min_size=1, max_size=3)
GRADES = st.lists(st.builds(ResourceGrade, st.integers(0, 4), CPU), max_size=3)


@given(COMPONENTS, GRADES, st.integers(0, 8))
def test_nodes_that_are_alike_are_filled_as_one_by_one(
    components: list[Component], grades: list[ResourceGrade], most: int
) -> None:
    assert sets_on_nodes(components, grades, most) == one_by_one(components, grades, most)


def test_the_grades_of_nodes_decide_where_a_set_goes() -> None:
    parts = (Component("jm", 1, {"cpu": CORE}), Component("tm", 4, {"cpu": 2 * CORE}))
    one = Placement(spread=(SpreadConstraint("cluster", "", 1, 1),), scheduling=AGGREGATED)
    small, large = (ResourceGrade(30, {"cpu": CORE}),), (ResourceGrade(2, {"cpu": 8 * CORE}),)
    where = fleet(
        cluster("a", 30, grades=small),
        cluster("b", 16, grades=large),
        features=frozenset({"MultiplePodTemplatesScheduling"}),
    )
    outcome = place(workload(0, one, requests=None, components=parts), where)
    assert dict(outcome.targets) == {"b": 0}
    assert {name: verdict.room for name, verdict in outcome.verdicts.items()} == {"a": 0, "b": 1}


def test_very_many_nodes_and_sets_take_bounded_work() -> None:
    parts = [Component(f"c{number}", 3, {"cpu": CORE // 7}) for number in range(100)]
    began = time.process_time()
    assert sets_on_nodes(parts, [ResourceGrade(10**9, {"cpu": 2 * CORE})], 10**6) > 0
    assert time.process_time() - began < 5.0, "far from minutes, on any machine"
