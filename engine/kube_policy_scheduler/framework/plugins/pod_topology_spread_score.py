"""The scores of PodTopologySpread: soft constraints of one template, weighed over the feasible nodes."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.counter_kinds import Counter
from kube_policy_scheduler.cluster.domains import DomainTotals, Topology, topology
from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, Rows
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE
from kube_policy_scheduler.framework.plugins.spread_constraints import (
    HOSTNAME,
    SpreadConstraint,
    counters_of,
    has_all_keys,
    state_of,
)


class PreparedScore(msgspec.Struct, frozen=True):
    """Raw scores of the feasible nodes."""

    raw: IntArray
    """`int64[rows]`"""
    ignored: BoolArray | None
    """`bool[rows]`: nodes that lack a label and get 0; None: no node."""

    def normalized(self, raw: IntArray) -> IntArray:
        """Return `int64[rows]`: 100 for the fewest pods, less for more."""
        scored = raw if self.ignored is None else raw[~self.ignored]
        if not len(scored):
            return np.zeros(len(raw), np.int64)
        lowest, highest = int(scored.min()), int(scored.max())
        if highest == 0:
            result = np.full(len(raw), MAX_SCORE, np.int64)
        else:
            result = MAX_SCORE * (highest + lowest - raw) // highest
        if self.ignored is not None:
            result[self.ignored] = 0
        return result


class SoftSpread(Measured):
    """The soft constraints of one template over one state of the node table; counts are updated with the pods."""

    def __init__(self, frame: Frame, constraints: Sequence[SpreadConstraint], *, require_all_keys: bool) -> None:
        self._constraints = constraints
        self._require_all_keys = require_all_keys
        self._cluster = weakref.ref(frame.cluster)  # which keeps the template, and with it this
        self._state = state_of(constraints, frame.template, frame.cluster.nodes)
        nodes = frame.cluster.nodes
        complete = has_all_keys(constraints, nodes)
        self._incomplete = ~complete if require_all_keys and not complete.all() else None
        """`bool[nodes]`: nodes that are not scored because they lack a label; None: no node."""
        self._parts: list[_HostPart | _DomainPart] = []
        for constraint in constraints:
            counters = counters_of(constraint, frame)
            domains = topology(nodes, constraint.topology_key)
            if constraint.topology_key == HOSTNAME:
                self._parts.append(_HostPart(constraint, domains, counters[0][0] if counters else None))
                continue
            eligible = constraint.eligible(frame.template, nodes)
            counting = complete if require_all_keys else None
            if eligible is not None:
                counting = eligible if counting is None else counting & eligible
            # to kube-scheduler a missing label is the value "": its pods count for nodes that do have that value
            unlabelled = None if require_all_keys else domains.empty
            totals = DomainTotals(domains, counters, counting=counting, unlabelled=unlabelled)
            self._parts.append(_DomainPart(constraint, domains, totals, counts_unlabelled=not require_all_keys))

    def serves(self, frame: Frame, constraints: Sequence[SpreadConstraint], *, require_all_keys: bool) -> bool:
        """Return whether this is still valid."""
        return (
            self._cluster() is frame.cluster
            and self._require_all_keys == require_all_keys
            and (self._constraints is constraints or self._constraints == constraints)
            and self._state == state_of(constraints, frame.template, frame.cluster.nodes)
            and all(part.sync() for part in self._parts)
        )

    def prepare(self, frame: Frame) -> PreparedScore:
        """Return the raw scores of the frame's rows, which are the feasible nodes."""
        rows = frame.rows
        ignored = None
        if self._incomplete is not None:
            ignored = self._incomplete[rows]
            if not ignored.any():
                ignored = None
        if len(self._parts) == 1 and isinstance(part := self._parts[0], _DomainPart):
            index = part.domains.index[rows]
            weights = part.weights(index, ignored)
            return PreparedScore(_rounded(weights).take(index), ignored)
        total: FloatArray | None = None
        for part in self._parts:
            mine = part.scores(rows, ignored)
            total = mine if total is None else total + mine
        assert total is not None
        return PreparedScore(_rounded(total), ignored)


class _HostPart(msgspec.Struct, frozen=True):
    """A constraint over hostnames: every node counts for itself, with any inclusion policies."""

    constraint: SpreadConstraint
    domains: Topology
    counter: Counter | None

    def sync(self) -> bool:
        if self.counter is None:
            return True
        self.counter.used = True
        return self.counter.live

    def scores(self, rows: Rows, ignored: BoolArray | None) -> FloatArray:
        index = self.domains.index[rows]
        scored = len(index) if ignored is None else len(index) - int(np.count_nonzero(ignored))
        weight, offset = math.log(scored + 2), float(self.constraint.max_skew - 1)
        if self.counter is None:
            result = np.full(len(index), offset)
        else:
            result = self.counter.per_node()[rows] * weight + offset
        result[index == self.domains.nothing] = 0.0
        return result


class _DomainPart(Measured, msgspec.Struct, frozen=True):
    """A constraint over domains of several nodes."""

    constraint: SpreadConstraint
    domains: Topology
    totals: DomainTotals
    counts_unlabelled: bool
    """Whether nodes without the label are a domain too when domains are counted."""

    def sync(self) -> bool:
        return self.totals.sync()

    def scores(self, rows: Rows, ignored: BoolArray | None) -> FloatArray:
        index = self.domains.index[rows]
        return self.weights(index, ignored).take(index)

    def weights(self, index: IntArray, ignored: BoolArray | None) -> FloatArray:
        """Return `float64[slots]`: the score of each domain; 0 for nodes without the label."""
        weight = math.log(self._size(index if ignored is None else index[~ignored]) + 2)
        result: FloatArray = self.totals.totals.astype(np.float64) * weight + float(self.constraint.max_skew - 1)
        result[self.domains.nothing] = 0.0
        return result

    def _size(self, index: IntArray) -> int:
        """Return how many domains these nodes are in."""
        seen = np.zeros(self.domains.slots, np.bool_)
        seen[index] = True
        size = int(np.count_nonzero(seen[: self.domains.size]))
        if self.counts_unlabelled and seen[self.domains.nothing]:
            empty = self.domains.empty
            size += empty is None or not seen[empty]
        return size


def _rounded(scores: FloatArray) -> IntArray:
    """Round half away from zero, as Go does; scores are not negative."""
    whole = np.floor(scores)
    whole += scores - whole >= 0.5
    return whole.astype(np.int64)
