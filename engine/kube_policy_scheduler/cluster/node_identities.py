"""The names of the nodes in the node table, with a version of their own. Pure.

The table's version also changes with every taint, condition and annotation; laying signals over the nodes again
for each of these would cost tens of milliseconds in a large cluster.
"""

from __future__ import annotations

from kube_policy_scheduler.cluster.nodes import NodeTable


class TableIdentities:
    """Names, hostname labels and addresses of a node table (`cluster.signal_join.NodeIdentities`)."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    @property
    def identity_version(self) -> int:
        """A number that changes whenever a name, a hostname label, an address or the order of rows does."""
        return self._table.identity_version

    @property
    def names(self) -> list[str]:
        """Names by row."""
        return self._table.names

    @property
    def hostnames(self) -> list[str | None]:
        """The `kubernetes.io/hostname` label by row; None if absent."""
        return [info.hostname for info in self._table.infos]

    @property
    def addresses(self) -> list[tuple[str, ...]]:
        """Every status address by row."""
        return [tuple(a.address for a in info.node.status.addresses or ()) for info in self._table.infos]
