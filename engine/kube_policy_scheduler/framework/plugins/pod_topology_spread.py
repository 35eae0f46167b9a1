"""PodTopologySpread: limits the skew of a set of pods between domains (required), or prefers less (preferred)."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.domains import DomainTotals, topology
from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.selectors import SelectorError
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import (
    SKIP,
    Default,
    FilterPlugin,
    PreFilterResult,
    Reads,
    Ready,
    ScorePlugin,
    Skip,
)
from kube_policy_scheduler.framework.plugins.pod_topology_spread_score import PreparedScore, SoftSpread
from kube_policy_scheduler.framework.plugins.spread_constraints import (
    HARD,
    SOFT,
    SYSTEM_DEFAULTS,
    SpreadConstraint,
    counters_of,
    default_constraints,
    has_all_keys,
    own_constraints,
    selects_everything,
    state_of,
)
from kube_policy_scheduler.framework.status import Code, Rejection, Status

TOO_MANY = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{TOO_MANY} (missing required label)"
_NO_DOMAIN = 2**31 - 1
"""The minimum of no domains; used only by a constraint with `minDomains` 0."""


class HardConstraint(NamedTuple):
    """The state of one hard constraint for each domain."""

    allowed: BoolArray
    """`bool[slots]`, indexed by `domain`."""
    domain: NDArray[np.intp]
    """`intp[nodes]`: the domain of each node."""
    missing: int
    """The domain of nodes without the label."""


_EVENTS = frozenset(
    {
        ClusterEvent.POD_ADD,
        ClusterEvent.POD_UPDATE,
        ClusterEvent.POD_DELETE,
        ClusterEvent.NODE_ADD,
        ClusterEvent.NODE_DELETE,
        ClusterEvent.NODE_LABEL,
        ClusterEvent.NODE_TAINT,
    }
)


class PodTopologySpread(FilterPlugin, ScorePlugin, msgspec.Struct, frozen=True):
    """Spreads pods over the domains of node labels."""

    defaults: Sequence[objects.TopologySpreadConstraint] = SYSTEM_DEFAULTS
    """Constraints of pods that declare none."""

    name = "PodTopologySpread"
    default = Default(11, weight=2)
    reads = Reads.SPEC | Reads.LABELS | Reads.ELSEWHERE
    normalizes = True

    @property
    def events(self) -> frozenset[ClusterEvent]:
        """Return the events that may help: with defaults that may reject a pod, also what selects its pods."""
        return _EVENTS if self.defaults is SYSTEM_DEFAULTS else _EVENTS | {ClusterEvent.WORKLOAD}

    def may_filter(self, template: PodTemplate) -> bool:
        """Return whether there may be hard constraints: the system's defaults are soft."""
        return bool(template.spec.topology_spread_constraints) or self.defaults is not SYSTEM_DEFAULTS

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Count per domain; skip pods without hard constraints."""
        try:
            constraints = self._constraints(frame, HARD)
        except SelectorError as error:
            return Status(Code.ERROR, self.name, (f"get constraints from pod: {error}",))
        if not constraints:
            return SKIP
        kept: _HardSpread | None = frame.template.memo.get((self.name, HARD))
        if kept is None or not kept.serves(frame, constraints):
            kept = _HardSpread(frame, constraints)
            frame.cluster.counters.keep(frame.template, (self.name, HARD), kept)
            kept.serves(frame, constraints)
        return Ready(kept.verdicts(frame))

    def filter(self, frame: Frame, state: Sequence[HardConstraint]) -> BoolArray:
        """Return `bool[rows]`: the nodes whose domains may take one more pod."""
        result: BoolArray | None = None
        for verdict in state:
            index = verdict.domain if isinstance(frame.rows, slice) else verdict.domain[frame.rows]
            passing: BoolArray = verdict.allowed.take(index)
            result = passing if result is None else result & passing
        assert result is not None
        return result

    def rejections(self, frame: Frame, state: Sequence[HardConstraint]) -> Sequence[Rejection]:
        """Return why nodes are rejected: by the first constraint in order that does so."""
        left = np.ones(frame.size, np.bool_)
        missing, skewed = np.zeros_like(left), np.zeros_like(left)
        for verdict in state:
            index = verdict.domain[frame.rows]
            rejected = left & ~verdict.allowed[index]
            without = rejected & (index == verdict.missing)
            missing |= without
            skewed |= rejected & ~without
            left &= ~rejected
        return [
            Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, NO_LABEL, missing),
            Rejection(Code.UNSCHEDULABLE, TOO_MANY, skewed),
        ]

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Weight the soft constraints by their domains among the feasible nodes; skip pods without any.

        kube-scheduler ends the attempt if a selector does not parse; the API server rejects it.
        """
        template = frame.pod.template
        if not template.spec.topology_spread_constraints and selects_everything(template, frame.cluster):
            return SKIP
        try:
            constraints = self._constraints(frame, SOFT)
        except SelectorError:
            return SKIP
        if not constraints:
            return SKIP
        own = bool(frame.template.spec.topology_spread_constraints)
        complete = own or self.defaults is not SYSTEM_DEFAULTS
        kept: SoftSpread | None = frame.template.memo.get((self.name, SOFT))
        if kept is None or not kept.serves(frame, constraints, require_all_keys=complete):
            kept = SoftSpread(frame, constraints, require_all_keys=complete)
            frame.cluster.counters.keep(frame.template, (self.name, SOFT), kept)
            kept.serves(frame, constraints, require_all_keys=complete)
        return Ready(kept.prepare(frame))

    def score(self, frame: Frame, state: PreparedScore) -> IntArray:
        """Return `int64[rows]`: how many pods of the set are near, weighted; less is better."""
        return state.raw

    def normalize(self, frame: Frame, state: PreparedScore, raw: IntArray | FloatArray) -> IntArray:
        """Return `int64[rows]`: 100 for the fewest; 0 for nodes without the labels."""
        return state.normalized(raw.astype(np.int64))

    def _constraints(self, frame: Frame, action: str) -> Sequence[SpreadConstraint]:
        template = frame.pod.template
        if template.spec.topology_spread_constraints:
            return own_constraints(template, action)
        if action == HARD and self.defaults is SYSTEM_DEFAULTS:
            return ()
        return default_constraints(template, frame.cluster, defaults=self.defaults, action=action)


class _HardSpread(Measured):
    """The hard constraints of one template over one state of the node table; counts are updated with the pods."""

    def __init__(self, frame: Frame, constraints: Sequence[SpreadConstraint]) -> None:
        self._constraints = constraints
        self._cluster = weakref.ref(frame.cluster)  # which keeps the template, and with it this
        self._state = state_of(constraints, frame.template, frame.cluster.nodes)
        self._totals: list[DomainTotals] = []
        self._known: list[IntArray | None] = []
        """Per constraint, the domains that any counting node is in; None means all."""
        self._self_match = [int(c.selects(frame.template.labels)) for c in constraints]
        nodes = frame.cluster.nodes
        complete = has_all_keys(constraints, nodes)
        for constraint in constraints:
            eligible = constraint.eligible(frame.template, nodes)
            totals = DomainTotals(
                topology(nodes, constraint.topology_key),
                counters_of(constraint, frame),
                counting=complete if eligible is None else complete & eligible,
            )
            present = totals.present()
            self._totals.append(totals)
            self._known.append(None if present.all() else np.flatnonzero(present))

    def serves(self, frame: Frame, constraints: Sequence[SpreadConstraint]) -> bool:
        """Return whether this is still valid."""
        return (
            self._cluster() is frame.cluster
            and (self._constraints is constraints or self._constraints == constraints)
            and self._state == state_of(constraints, frame.template, frame.cluster.nodes)
            and all(totals.sync() for totals in self._totals)
        )

    def verdicts(self, frame: Frame) -> list[HardConstraint]:
        """Return the state of each constraint with the pods that are placed now."""
        found = []
        for position, constraint in enumerate(self._constraints):
            domains = self._totals[position].topology
            totals = self._totals[position].totals
            if frame.cluster.dry_run_changes:
                totals = totals + self._unseen(frame, position)
            known = self._known[position]
            counted = totals[: domains.size] if known is None else totals[known]
            least = int(counted.min()) if len(counted) else _NO_DOMAIN
            if len(counted) < constraint.min_domains:
                least = 0
            allowed = totals <= constraint.max_skew + least - self._self_match[position]
            allowed[domains.nothing] = False
            found.append(HardConstraint(allowed, domains.index, domains.nothing))
        return found

    def _unseen(self, frame: Frame, position: int) -> IntArray:
        """Return what kube-scheduler's dry run adds to the totals, `int64[slots]`.

        Its PreFilter counts no terminating pod, and up to 1.37 no pod for the selector `{}`; but when a dry run
        removes or adds such pods (`updateWithPod`), it subtracts or adds them anyway.
        """
        constraint, totals = self._constraints[position], self._totals[position]
        result = np.zeros_like(totals.totals)
        for pod, node_name, step in frame.cluster.dry_run_changes:
            row = frame.cluster.nodes.rows.get(node_name)
            if row is None or pod.namespace != frame.pod.namespace or not constraint.selects(pod.labels):
                continue
            if totals.counts(row) and (
                pod.terminating or constraint.counted(pod.namespace, frame.cluster.rules) is None
            ):
                result[totals.topology.index[row]] += step
        return result
