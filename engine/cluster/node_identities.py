"""The names of the nodes in the node table, with a version of their own. Pure.

The table's version also changes with every taint, condition and annotation; laying signals over the nodes again
for each of these would cost tens of milliseconds in a large cluster.
"""

from __future__ import annotations

from engine.cluster.nodes import NodeTable

HOSTNAME_LABEL = "kubernetes.io/hostname"


class TableIdentities:
    """Names, hostname labels and addresses of a node table (`engine.cluster.signal_join.NodeIdentities`)."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._seen_version: int | None = None
        self._identity_version = 0
        self._names: list[str] = []
        self._hostnames: list[str | None] = []
        self._addresses: list[tuple[str, ...]] = []

    @property
    def identity_version(self) -> int:
        """A number that changes whenever a name, a hostname label, an address or the order of rows does."""
        self._look()
        return self._identity_version

    @property
    def names(self) -> list[str]:
        """Names by row."""
        self._look()
        return self._names

    @property
    def hostnames(self) -> list[str | None]:
        """The `kubernetes.io/hostname` label by row; None where absent."""
        self._look()
        return self._hostnames

    @property
    def addresses(self) -> list[tuple[str, ...]]:
        """Every status address by row."""
        self._look()
        return self._addresses

    def _look(self) -> None:
        if self._seen_version == self._table.version:
            return
        self._seen_version = self._table.version
        infos = self._table.infos
        names = [info.name for info in infos]
        hostnames = [info.labels.get(HOSTNAME_LABEL) for info in infos]
        addresses = [tuple(address.address for address in info.node.status.addresses or ()) for info in infos]
        if (names, hostnames, addresses) != (self._names, self._hostnames, self._addresses):
            self._names, self._hostnames, self._addresses = names, hostnames, addresses
            self._identity_version += 1
