"""Static columns: after nodes came, changed and went, they equal a column that is computed from scratch."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import nodes, objects
from kube_policy_scheduler.cluster.domains import topology
from kube_policy_scheduler.cluster.nodes import NodeInfo, NodeTable
from kube_policy_scheduler.cluster.static_columns import CodedColumn, ValueColumn
from kube_policy_scheduler.cluster.taints import taint_sets, taint_sets_in_steps

NAMES = ("a", "b", "c", "d", "e")
ZONES = (None, "", "x", "y", "z")


def node(name: str, *, zone: str | None, cordoned: bool) -> objects.Node:
    body: dict[str, Any] = {
        "metadata": {"name": name, "labels": {} if zone is None else {"zone": zone}},
        "spec": {"unschedulable": cordoned, "taints": [{"key": f"k{zone}", "value": "", "effect": "NoSchedule"}]},
    }
    return msgspec.convert(body, objects.Node)


def texts(table: NodeTable) -> list[str | None]:
    column = table.label("zone")
    return [None if code < 0 else column.values[code] for code in column.codes]


STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from((*ZONES, "gone")), st.booleans()), max_size=40)


@given(STEPS)
def test_patched_columns_equal_the_nodes(steps: list[tuple[str, str | None, bool]]) -> None:
    table = NodeTable()
    columns = (table.label("zone"), table.unschedulable)
    assert [len(columns[0].codes), len(columns[1])] == [0, 0]
    for name, zone, cordoned in steps:
        if zone != "gone":
            table.set(node(name, zone=zone, cordoned=cordoned))
        elif name in table:
            table.remove(name)
        zones = [info.labels.get("zone") for info in table.infos]
        assert texts(table) == zones
        assert table.unschedulable.tolist() == [info.node.spec.unschedulable for info in table.infos]
        assert set(table.label("zone").index) == set(zones) - {None}
        for value in ("", "x"):
            assert table.label("zone").equal(value).tolist() == [other == value for other in zones]
        sets = taint_sets(table)
        assert [sets.sets[code][0].key for code in sets.codes] == [f"k{zone}" for zone in zones]


@given(STEPS, st.lists(st.integers(0, 3), max_size=40), st.booleans())
def test_a_column_made_in_steps_equals_the_nodes(
    steps: list[tuple[str, str | None, bool]], between: list[int], is_for_a_pod: bool
) -> None:
    table = NodeTable()
    for name in (*NAMES, "stays"):
        table.set(node(name, zone="x", cordoned=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "_ROWS_IN_A_STEP", 1)
        of_label = iter(partial(table.make_labels, ("zone",)), True) if is_for_a_pod else table.label_in_steps("zone")
        making = chain(of_label, table.unschedulable_in_steps(), taint_sets_in_steps(table))
        for number, (name, zone, cordoned) in enumerate(steps):
            for _ in range(between[number] if number < len(between) else 0):
                next(making, None)
            if zone != "gone":
                table.set(node(name, zone=zone, cordoned=cordoned))
            elif name in table:
                table.remove(name)
        for _ in making:
            pass
        patch.setattr(nodes, "_LABELS", None)  # nothing is read at once
        patch.setattr(NodeTable, "_keep", None)
        assert table.unschedulable.tolist() == [info.node.spec.unschedulable for info in table.infos]
        sets = taint_sets(table)
        zones = [info.labels.get("zone") for info in table.infos]
        assert [sets.sets[code][0].key for code in sets.codes] == [f"k{zone}" for zone in zones]
        assert texts(table) == [info.labels.get("zone") for info in table.infos]
        assert set(table.label("zone").index) == set(texts(table)) - {None}


@given(STEPS)
def test_domains_are_the_values_that_some_node_has(steps: list[tuple[str, str | None, bool]]) -> None:
    table = NodeTable()
    for name, zone, cordoned in steps:
        if zone != "gone":
            table.set(node(name, zone=zone, cordoned=cordoned))
        elif name in table:
            table.remove(name)
        domains = topology(table, "zone")
        zones = [info.labels.get("zone") for info in table.infos]
        by_domain = dict(zip(domains.index.tolist(), zones, strict=True))
        assert set(by_domain) - {domains.nothing} == set(range(domains.size))
        assert len(set(by_domain.values())) == len(by_domain)
        assert [by_domain[domain] for domain in domains.index.tolist()] == zones
        assert by_domain.get(domains.nothing) is None
        assert domains.empty == next((domain for domain, zone in by_domain.items() if zone == ""), None)


def test_a_code_without_rows_serves_the_next_new_value() -> None:
    column = CodedColumn(["a", "b", "a"])
    column.write(1, "c")
    column.write(2, "d")

    assert (column.codes.tolist(), column.values) == ([0, 2, 1], ["a", "d", "c"])
    assert not column.equal("b").any()


def test_a_value_column_grows_and_shrinks_with_its_rows() -> None:
    column = ValueColumn([1, 2], np.int64)
    for row in range(2, 200):
        column.write(row, row + 1)
    column.remove(0)
    assert column.values.tolist() == [200, *range(2, 200)]


def test_columns_beyond_the_limit_of_the_cache_are_computed_again() -> None:
    table = NodeTable()
    table.set(node("a", zone="x", cordoned=False))

    def read(info: NodeInfo) -> str | None:
        return info.labels.get("zone")

    first = table.coded(("label", "zone"), read)
    for number in range(600):
        table.coded(number, read)
    table.set(node("a", zone="y", cordoned=False))

    assert table.coded(("label", "zone"), read) is not first
    assert texts(table) == ["y"]
