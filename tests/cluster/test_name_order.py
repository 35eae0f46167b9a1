"""The order of names follows nodes that come and go."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.name_order import name_order
from kube_policy_scheduler.cluster.nodes import NodeTable

EVENTS = st.lists(
    st.tuples(st.sampled_from(["set", "set", "labels", "remove", "ask", "many"]), st.integers(0, 12)), max_size=40
)


def node(name: str, *, hostname: str = "") -> objects.Node:
    labels = {"kubernetes.io/hostname": hostname or name}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, objects.Node)


@given(EVENTS)
def test_the_places_are_those_of_the_sorted_names(events: list[tuple[str, int]]) -> None:
    nodes = NodeTable()
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
            case "ask":
                assert name_order(nodes).tolist() == [sorted(nodes.names).index(each) for each in nodes.names]
    assert name_order(nodes).tolist() == [sorted(nodes.names).index(each) for each in nodes.names]
