"""Aggregates over nodes: kept for the nodes as they are, and brought up to date for those that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.counter_kinds import ValueCounts
from kube_policy_scheduler.cluster.domains import Topology
from kube_policy_scheduler.cluster.domains import topology as topology_of
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.columns import full
from kube_policy_scheduler.lang.compiling.reductions import exact, exact_totals, nothing, reduced, rounded
from kube_policy_scheduler.lang.environment import CLUSTER, CapturingFrame, NodeFold, Texts

_KEPT = 256
"""Aggregates kept, each for some values of pods: about 100 KB at 5,000 nodes."""
_REBUILD_SHARE = 8
"""With more than 1/8 of the rows changed, going over all nodes is cheaper."""


def fold_nodes(frame: Frame, fold: NodeFold, captured: tuple[Any, ...]) -> Any:
    """Return what an aggregate over nodes gives: one value, or one for each row by its domain."""
    kept = _kept(frame, fold, captured)
    results = kept.results if kept is not None else _results(frame, fold, captured)
    if fold.topology == CLUSTER:
        return results[0].item()
    return results[topology_of(frame.cluster.nodes, fold.topology).index[frame.rows]]


def _kept(frame: Frame, fold: NodeFold, captured: tuple[Any, ...]) -> KeptFold | None:
    """Return what is kept of an aggregate; None where it is asked for the first time, or cannot be kept.

    Pods that have requests of their own capture values of their own: what nobody asks for again is not kept.
    """
    if not fold.changes_by_row:
        return None
    cache: KeptView[Any, KeptFold | str] = frame.cluster.view("aggregates over nodes", most=_KEPT, size_of=_size)
    key = fold, captured
    kept = cache.get(key)
    if isinstance(kept, KeptFold):
        kept.follow(frame)
        return kept
    if kept is None:
        cache.set(key, _ASKED_ONCE)
        return None
    made = KeptFold(frame, fold, captured)
    cache.set(key, made)
    return made


_ASKED_ONCE = "asked once"


def _size(key: tuple[NodeFold, tuple[Any, ...]], kept: KeptFold | str) -> int:
    """Return about how many bytes an entry takes; pods may have long annotations."""
    texts = sum(len(value) for value in key[1] if isinstance(value, str | tuple))
    return 500 + texts + (kept.size if isinstance(kept, KeptFold) else 0)


def _parts(frame: Frame, fold: NodeFold, captured: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the values, None for count, and `bool[rows]`, which nodes take part, None for all."""
    view = CapturingFrame(frame, captured)
    chosen = fold.where(view) if fold.where is not None else None
    if fold.value is not None:
        return fold.value(view), chosen
    everyone = chosen if chosen is not None else full(True, frame.size)
    return (everyone, None) if fold.function == "any" else (None, everyone)


def _results(frame: Frame, fold: NodeFold, captured: tuple[Any, ...]) -> Any:
    """Return `[domains + 1]`, or one value for the cluster; the last one is of nodes outside every domain."""
    values, chosen = _parts(frame.at(slice(None)), fold, captured)
    if fold.topology == CLUSTER:
        return reduced(fold.function, values, chosen, None, 1)
    domains = topology_of(frame.cluster.nodes, fold.topology)
    found = reduced(fold.function, values, chosen, domains.index, domains.size + 1)
    found[domains.size] = nothing(fold.function)
    return found


def _journals(nodes: NodeTable) -> tuple[Journal[int], ...]:
    """Return where the rows are written that changed in what aggregates read of nodes."""
    return nodes.static_changes, nodes.image_changes, nodes.dynamic_changes


class KeptFold:
    """One aggregate over the nodes of a table: its result for each domain.

    The same as `reduced` gives, to the last bit: sums are kept exactly.
    """

    __slots__ = (
        "_captured",
        "_chosen",
        "_counts",
        "_different",
        "_fold",
        "_groups",
        "_number",
        "_order",
        "_positions",
        "_starts",
        "_topology",
        "_totals",
        "_values",
        "results",
    )

    def __init__(self, frame: Frame, fold: NodeFold, captured: tuple[Any, ...]) -> None:
        self._fold = fold
        self._captured = captured
        self._groups: NDArray[np.intp] = np.zeros(0, np.intp)
        """`intp[nodes]`: the domain of each node; the last one is of nodes outside every domain."""
        self._number = 1
        """Of groups."""
        self._topology: object = None
        """What says the groups; None: all nodes are one."""
        self._order: NDArray[np.intp] | None = None
        self._starts: NDArray[np.intp] | None = None
        """For min and max: the rows by group, and where each group begins."""
        self._values: Any = None
        """`float64[nodes]`, by row; what takes no part is 0 for sums, infinite for min and max; texts: a list."""
        self._chosen: NDArray[np.bool_] = np.zeros(0, np.bool_)
        """`bool[nodes]`: has a value that takes part; of any and all: speaks for any, against all."""
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)
        """`int64[groups]`: nodes that are chosen."""
        self._totals: list[int] = []
        """For sums and means: exact sums by group."""
        self._different = ValueCounts(1)
        self.results: Any = None
        """`[groups]`; read-only."""
        self._positions: list[int] = []
        """How far each journal of the nodes was read."""
        self._rebuild(frame)

    @property
    def size(self) -> int:
        """Return about how many bytes it takes."""
        return 2000 + 30 * len(self._groups) + 100 * self._number

    def follow(self, frame: Frame) -> None:
        """Ask again about the nodes that changed since the last time."""
        nodes = frame.cluster.nodes
        journals = _journals(nodes)
        positions = [journal.end for journal in journals]
        if positions == self._positions:
            return
        if len(self._groups) != nodes.size or self._topology is not self._topology_now(nodes):
            self._rebuild(frame)
            return
        rows = set[int]()
        for journal, position in zip(journals, self._positions, strict=True):
            changed = journal.since(position) if journal.end - position <= nodes.size else None
            if changed is None:
                self._rebuild(frame)
                return
            rows.update(changed)
        self._positions = positions
        if len(rows) * _REBUILD_SHARE > nodes.size:
            self._rebuild(frame)
            return
        asked = np.array([row for row in rows if row < nodes.size], np.int64)
        values, chosen = self._asked(frame.at(asked))
        for group in self._write(asked, values, chosen):
            self.results[group] = self._result(group)

    def _topology_now(self, nodes: NodeTable) -> Topology | None:
        return topology_of(nodes, self._fold.topology) if self._fold.topology != CLUSTER else None

    def _asked(self, frame: Frame) -> tuple[Any, NDArray[np.bool_]]:
        """Return the values as they are kept, and which take part."""
        function = self._fold.function
        values, chosen = _parts(frame, self._fold, self._captured)
        if function in ("any", "all"):
            against = values if function == "any" else ~values
            return None, against if chosen is None else chosen & against
        if values is None:
            return None, chosen
        if isinstance(values, Texts):
            words: Sequence[str | None] = [*values.values, None]
            there = values.codes >= 0
            chosen = there if chosen is None else chosen & there
            return [words[code] for code in values.codes.tolist()], chosen
        there = ~np.isnan(values)
        chosen = there if chosen is None else chosen & there
        if function == "distinct":
            return values.tolist(), chosen
        return np.where(chosen, values, _NEUTRAL.get(function, 0.0)), chosen

    def _rebuild(self, frame: Frame) -> None:
        """Go over all nodes."""
        nodes = frame.cluster.nodes
        self._positions = [journal.end for journal in _journals(nodes)]
        self._topology = domains = self._topology_now(nodes)
        self._groups = np.zeros(nodes.size, np.intp) if domains is None else domains.index
        self._number = 1 if domains is None else domains.size + 1
        values, self._chosen = self._asked(frame.at(slice(None)))
        self._counts = np.bincount(self._groups[self._chosen], minlength=self._number)
        self._values = values
        function = self._fold.function
        if function in ("sum", "avg"):
            self._totals = exact_totals(values, self._groups, self._number)
        elif function in _NEUTRAL:
            self._order = np.argsort(self._groups, kind="stable")
            self._starts = np.searchsorted(self._groups[self._order], np.arange(self._number + 1))
        elif function == "distinct":
            self._different = ValueCounts(self._number)
            for row in np.flatnonzero(self._chosen).tolist():
                self._different.add(int(self._groups[row]), values[row], 1)
        self._summarise()

    def _write(self, rows: NDArray[np.int64], values: Any, chosen: NDArray[np.bool_]) -> set[int]:
        """Replace the values of some rows; return the groups that have others now."""
        function, groups, changed = self._fold.function, self._groups, set[int]()
        for at, row in enumerate(rows.tolist()):
            before, after, group = bool(self._chosen[row]), bool(chosen[at]), int(groups[row])
            if before is not after:
                self._chosen[row] = after
                self._counts[group] += 1 if after else -1
                changed.add(group)
            if values is None:
                continue
            old, new = self._values[row], values[at]
            if old == new and before is after:
                continue
            changed.add(group)
            self._values[row] = new
            if function in ("sum", "avg"):
                self._totals[group] += exact(float(new)) - exact(float(old))
            elif function == "distinct":
                if before:
                    self._different.add(group, old, -1)
                if after:
                    self._different.add(group, new, 1)
        if self._fold.topology != CLUSTER:
            changed.discard(self._number - 1)
        return changed

    def _summarise(self) -> None:
        """Make the results of all groups."""
        found = np.array([self._result(group) for group in range(self._number)])
        if self._fold.topology != CLUSTER:
            found[-1] = nothing(self._fold.function)
        self.results = found

    def _result(self, group: int) -> Any:
        """Return the result of one group."""
        function, count = self._fold.function, int(self._counts[group])
        match function:
            case "any":
                return count > 0
            case "all":
                return count == 0
            case "count":
                return float(count)
            case "distinct":
                return float(self._different.numbers[group])
            case "sum":
                return rounded(self._totals[group])
            case "avg":
                return rounded(self._totals[group]) / count if count else np.nan
        if not count:
            return np.nan
        assert self._order is not None
        assert self._starts is not None
        rows = self._order[self._starts[group] : self._starts[group + 1]]
        return (np.min if function == "min" else np.max)(self._values[rows])


_NEUTRAL = {"min": np.inf, "max": -np.inf}
"""What takes no part in these."""
