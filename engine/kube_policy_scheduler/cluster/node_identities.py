"""The names of the nodes in the node table, with a version of their own. Pure.

The table's version also changes with every taint, condition and annotation; laying signals over the nodes again
for each of these would cost tens of milliseconds in a large cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar, overload

from kube_policy_scheduler.cluster.node_info import NodeInfo
from kube_policy_scheduler.cluster.nodes import NodeTable

T = TypeVar("T")


class _ReadOnDemand(Sequence[T]):
    """One thing about each node, read where it is asked for: there may be a million nodes."""

    def __init__(self, infos: Sequence[NodeInfo], read: Callable[[NodeInfo], T]) -> None:
        self._infos, self._read = infos, read

    def __len__(self) -> int:
        return len(self._infos)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._read(info) for info in self._infos[index]]
        return self._read(self._infos[index])


class IdentityChanges(NamedTuple):
    """The nodes that changed between two versions."""

    rows: set[int]
    """Rows whose node changed, also of nodes that are gone."""
    size: int
    """The number of nodes."""
    now: Sequence[tuple[int, str, str | None, Iterable[str]]]
    """Of those rows that have a node: the row, and its name, hostname label and addresses."""


class NodeIdentities:
    """Names, hostname labels and addresses of a node table."""

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
    def hostnames(self) -> Sequence[str | None]:
        """The `kubernetes.io/hostname` label by row; None if absent."""
        return _ReadOnDemand(self._table.infos, lambda info: info.hostname)

    @property
    def addresses(self) -> Sequence[tuple[str, ...]]:
        """Every status address by row."""
        return _ReadOnDemand(self._table.infos, _addresses)

    def changes_since(self, version: int) -> IdentityChanges | None:
        """Return what changed since a version; None if that is too long ago to know."""
        rows, infos = self._table.identity_changes.since(version), self._table.infos
        if rows is None:
            return None
        changed = [infos[row] for row in set(rows) if row < len(infos)]
        return IdentityChanges(
            set(rows), len(infos), [(info.row, info.name, info.hostname, _addresses(info)) for info in changed]
        )


def _addresses(info: NodeInfo) -> tuple[str, ...]:
    return tuple(address.address for address in info.node.status.addresses or ())
