"""Which changes of the node table make signals be laid over the nodes again."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.node_identities import TableIdentities
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.signal_join import NodeIndex


def node(name: str, *, address: str = "10.0.0.1", **labels: str) -> objects.Node:
    given: dict[str, Any] = {
        "metadata": {"name": name, "labels": {key.replace("__", "/"): text for key, text in labels.items()}},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }
    return msgspec.convert(given, objects.Node)


def test_only_names_hostnames_and_addresses_change_the_version() -> None:
    table = NodeTable()
    identities = TableIdentities(table)
    table.set(node("a"))
    first = identities.identity_version
    table.set(node("a", zone="z1"))
    assert table.version > 1, "the label did change the table"
    assert identities.identity_version == first
    table.set(node("a", address="10.0.0.9", zone="z1"))
    second = identities.identity_version
    assert second != first
    table.set(node("b", address="10.0.0.2"))
    table.set(node("c", address="10.0.0.3", **{"kubernetes.io__hostname": "host-c"}))
    third = identities.identity_version
    assert third != second
    table.remove("a")
    assert identities.identity_version != third
    assert identities.names == [info.name for info in table.infos]


def test_the_index_is_by_the_tables_rows() -> None:
    table = NodeTable()
    table.set(node("a"))
    table.set(node("b", address="10.0.0.2", **{"kubernetes.io__hostname": "host-b"}))
    rows = NodeIndex.of(TableIdentities(table)).rows
    assert rows == {"a": 0, "b": 1, "10.0.0.1": 0, "10.0.0.2": 1, "host-b": 1}
