"""The order of names follows nodes that come and go."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import name_order as order_module
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.name_order import name_order, name_order_in_steps
from kube_policy_scheduler.cluster.nodes import NodeTable

EVENTS = st.lists(
    st.tuples(st.sampled_from(["set", "set", "labels", "remove", "ask", "many", "step", "step"]), st.integers(0, 12)),
    max_size=40,
)


def node(name: str, *, hostname: str = "") -> objects.Node:
    labels = {"kubernetes.io/hostname": hostname or name}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, objects.Node)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "_SORTED_AT_ONCE", 3)
    monkeypatch.setattr(order_module, "_MERGED_AT_ONCE", 2)
    monkeypatch.setattr(order_module, "_MOST_PATCHED", 80)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS)
def test_the_places_are_those_of_the_sorted_names(events: list[tuple[str, int]]) -> None:
    nodes = NodeTable()
    steps: Iterator[None] = iter(())
    for number, (event, which) in enumerate(events):
        name = f"n{which}"
        match event:
            case "set":
                nodes.set(node(name))
            case "labels":
                nodes.set(node(name, hostname=f"h{number}"))
            case "remove" if name in nodes:
                nodes.remove(name)
            case "many":
                for each in range(70):
                    nodes.set(node(f"m{number}-{each}"))
            case "step":
                if next(steps, "done") == "done":
                    steps = name_order_in_steps(nodes)
            case "ask":
                assert name_order(nodes).tolist() == [sorted(nodes.names).index(each) for each in nodes.names]
    assert name_order(nodes).tolist() == [sorted(nodes.names).index(each) for each in nodes.names]
