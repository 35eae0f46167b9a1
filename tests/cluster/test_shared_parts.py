"""What nodes have in common is one object, however many they are; what differs stays."""

from __future__ import annotations

import json

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import NodeTable


def node(number: int) -> bytes:
    """Return the bytes of a node, as of an API server: no two texts are one object."""
    notes = {"nodes.example.com/a-key-that-is-longer-than-most": "the same", "nodes.example.com/id": f"node-{number}"}
    return json.dumps({"metadata": {"name": f"n{number}", "annotations": notes}}).encode()


def test_equal_annotations_of_nodes_are_shared() -> None:
    table = NodeTable()
    for number in range(3):
        table.set(msgspec.json.decode(node(number), type=objects.Node))
    first, second, _ = (info.node.metadata.annotations or {} for info in table.infos)

    (key, shared), (_, own) = second.items()
    assert own == "node-1"
    assert shared == "the same"
    assert key is next(iter(first))
    assert shared is first[key]
