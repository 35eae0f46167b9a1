"""`spread` and `pack` as plugins: pods of one key over topology domains, from the cluster's counters.

The score of `spread` is kube-scheduler's normalisation of PodTopologySpread without its rounding: with `count`
pods of the key in a node's domain, and `most` and `least` among the nodes that fit, 100 * (most + least - count)
/ most. The emptiest domain gets 100; one more pod weighs less the more there are, so 1000 against 1001 does not
drown other scores as 0 against 1 does; and the weight compares with those of the default scores. `pack` is
100 * count / most. Nodes outside every domain get 0.

With `target by`, the value of a domain is the sum over its nodes, its fill is (count + 1/2) / value, and it gets 100 *
(least fill) / fill: the best domain is the one that the same method gives the next seat.

With `target`, a domain that is to have the share `s` of `n` pods, the one that is decided included, and has `count` of
them without it, gets 100 * (1 - (count + 1/2) / (2 * s * n)), at least 0: 100 at most, about 50 at its target, 0 from
twice its target on. So the score falls with each pod in the domain and grows with its share, and the best domain is the
one that the method of Webster and Sainte-Lague gives the next seat: the shares of the pods approach the targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np

from kube_policy_scheduler.builtins.pods import MemberSet
from kube_policy_scheduler.cluster.counter_kinds import Counter
from kube_policy_scheduler.cluster.domains import DomainTotals, Topology, topology
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import (
    SKIP,
    FilterPlugin,
    PreFilterResult,
    Reads,
    Ready,
    Scope,
    ScorePlugin,
    ScoresByCount,
    ScoresByDomain,
    Skip,
)
from kube_policy_scheduler.framework.plugins.node_affinity import NodeAffinity
from kube_policy_scheduler.framework.plugins.node_unschedulable import NodeUnschedulable
from kube_policy_scheduler.framework.plugins.taint_toleration import TaintToleration
from kube_policy_scheduler.framework.status import Code, Rejection
from kube_policy_scheduler.lang.checked import ClauseKind, Grouping
from kube_policy_scheduler.lang.compiling.columns import full
from kube_policy_scheduler.lang.compiling.compiled import CompiledGrouping
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.policy.clauses import FilterClause, PolicyClause, events_of


class _Grouping(PolicyClause):
    clause: CompiledGrouping
    reads = Reads.POD | Reads.ELSEWHERE

    def __init__(self, clause: CompiledGrouping) -> None:
        self.clause = clause
        self.name = clause.name
        self.events = events_of(clause)
        assert isinstance(clause.checked, Grouping)
        self._follows_template = not clause.checked.key.info.depends & ~Depends.TEMPLATE
        self._counters: WeakKeyDictionary[PodTemplate, ReferenceType[Counter]] = WeakKeyDictionary()
        """Those asked for last, by template. They are the cluster's, and know the template."""

    def _applies(self, frame: Frame) -> bool:
        return self.clause.condition is None or bool(self.clause.condition(frame))

    def _counter(self, frame: Frame) -> Counter:
        """Return what counts the pods with the pod's key on each node, without those that are being deleted."""
        counters, template = frame.cluster.counters, frame.pod.template
        known = self._counters.get(template)
        counter = known() if known is not None else None
        if counter is not None and counter.live and counter.owner is counters:
            counter.used = True
            return counter
        counter = counters.counter(MemberSet(self.clause.members(frame)), terminating=False, asks=template)
        if self._follows_template:
            self._counters[template] = ref(counter)
        return counter

    def _per_node(self, frame: Frame) -> IntArray:
        """Return `int64[nodes]`: the pods of that counter."""
        return self._counter(frame).per_node()  # type: ignore[return-value]  # int32 here, which adds up alike

    def domain_counts(self, frame: Frame) -> tuple[FloatArray, BoolArray | None]:
        """Return `float64[rows]`, pods of the key in each row's domain, and `bool[rows]`, whether it has one.

        None stands for all: every node is a domain.
        """
        if self.clause.topology is None:
            return self._per_node(frame)[frame.rows].astype(np.float64), None
        domains, totals = self._domain_totals(frame, self.clause.topology)
        index: IntArray = domains.index[frame.rows]
        return totals[index], index != domains.nothing

    def _domain_totals(self, frame: Frame, key: str) -> tuple[Topology, FloatArray]:
        """Return the domains of a label, and `float64[slots]`, the pods of the key in each."""
        nodes, counter = frame.cluster.nodes, self._counter(frame)
        domains = topology(nodes, key)
        kept: KeptView[tuple[Counter, str], DomainTotals] = frame.cluster.view("totals of groupings", most=_KEPT_TOTALS)
        totals = kept.get((counter, key))
        if totals is None or totals.topology is not domains or not totals.sync():
            totals = DomainTotals(domains, [(counter, 1)])
            totals.sync()
            kept.set((counter, key), totals)
        return domains, totals.totals.astype(np.float64)


class GroupingScore(_Grouping, ScorePlugin):
    """Prefers domains with fewest (`spread`) or most (`pack`) pods of the key."""

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Have nothing to say where the clause's condition does not hold."""
        return Ready() if self._applies(frame) else SKIP

    def score(self, frame: Frame, state: Any) -> FloatArray:
        """Return `float64[rows]`, 0 to 100."""
        raise NotImplementedError

    def counter(self, frame: Frame) -> Counter:
        """Return what counts the pods with the pod's key on each node."""
        return self._counter(frame)

    def of_counts(self, counts: FloatArray, *, most: float, fewest: float) -> FloatArray:
        """Return the scores of domains with these numbers of pods."""
        if self.clause.kind is ClauseKind.PACK:
            return counts * (100.0 / most) if most else np.zeros(len(counts))
        return (most + fewest - counts) * (100.0 / most) if most else np.full(len(counts), 100.0)

    def normalize(self, frame: Frame, state: Any, raw: IntArray | FloatArray) -> IntArray | FloatArray:
        """Return the raw scores: they are final."""
        return raw


class NodeGroupingScore(GroupingScore, ScoresByCount):
    """Each node is a domain."""

    def score(self, frame: Frame, state: Any) -> FloatArray:
        """Return `float64[rows]`, 0 to 100."""
        counts = self._per_node(frame)[frame.rows].astype(np.float64)
        most, fewest = (float(counts.max()), float(counts.min())) if len(counts) else (0.0, 0.0)
        return self.of_counts(counts, most=most, fewest=fewest)


class DomainGroupingScore(GroupingScore, ScoresByDomain):
    """The values of a label are the domains."""

    def __init__(self, clause: CompiledGrouping) -> None:
        super().__init__(clause)
        assert clause.topology is not None
        self._key = clause.topology

    def score(self, frame: Frame, state: Any) -> FloatArray:
        """Return `float64[rows]`, 0 to 100."""
        domains, counts = self.domains(frame)
        index = domains.index[frame.rows]
        feasible = np.zeros(domains.slots, np.bool_)
        feasible[index] = True
        return self.of_domains(frame, domains, counts, feasible)[index]

    def domains(self, frame: Frame) -> tuple[Topology, FloatArray]:
        """Return the domains, and `float64[slots]`, the pods of the key in each."""
        return self._domain_totals(frame, self._key)

    def of_domains(self, frame: Frame, domains: Topology, counts: FloatArray, feasible: BoolArray) -> FloatArray:
        """Return `float64[slots]`: the scores by domain; `feasible`, `bool[slots]`, says which has a feasible node."""
        if self.clause.targets:
            return self._by_target(frame, domains, counts)
        known = counts[: domains.size][feasible[: domains.size]]
        most, fewest = (float(known.max()), float(known.min())) if len(known) else (0.0, 0.0)
        scores = self.of_counts(counts, most=most, fewest=fewest)
        scores[domains.size :] = 0.0
        return scores

    def _by_target(self, frame: Frame, domains: Topology, counts: FloatArray) -> FloatArray:
        """Return `float64[slots]`, 0 to 100: how far each domain is below its share of the pods."""
        targets, column = self.clause.targets, frame.cluster.nodes.label(self._key)
        totals = counts[: domains.size]
        there = {value: code for value in targets if (code := column.index.get(value)) is not None}
        rest = max(0.0, 1.0 - sum(targets.values())) / max(domains.size - len(there), 1)
        wanted = np.full(domains.size, rest)
        for value, code in there.items():
            wanted[domains.index[np.argmax(column.codes == code)]] = targets[value]
        wanted *= totals.sum() + 1.0
        scores = np.zeros(domains.slots)
        with np.errstate(all="ignore"):
            filled = (totals + 0.5) / (2.0 * wanted)
        scores[: domains.size] = np.where(wanted > 0, 100.0 * np.maximum(1.0 - filled, 0.0), 0.0)
        return scores


class ProportionalScore(GroupingScore):
    """Prefers domains with fewest pods of the key for their size (`target by`)."""

    def score(self, frame: Frame, state: Any) -> FloatArray:
        """Return `float64[rows]`, 0 to 100; 0 where the domain has no size."""
        counts, inside = self.domain_counts(frame)
        sizes = self._sizes(frame)
        usable = sizes > 0 if inside is None else inside & (sizes > 0)
        with np.errstate(all="ignore"):
            filled = np.where(usable, (counts + 0.5) / sizes, np.inf)
            least = filled.min(initial=np.inf)
            scores: FloatArray = np.where(usable & np.isfinite(filled), 100.0 * least / filled, 0.0)
        return scores

    def _sizes(self, frame: Frame) -> FloatArray:
        """Return `float64[rows]`: the size of each row's domain, the sum over its nodes."""
        assert self.clause.share is not None
        key = self.clause.topology
        whole = frame if key is None else frame.at(slice(None))
        given: FloatArray = full(self.clause.share(whole), whole.size)
        sizes = np.where(given > 0, given, 0.0)
        if key is None:
            return sizes
        domains = topology(frame.cluster.nodes, key)
        totals = np.bincount(domains.index, weights=sizes, minlength=domains.slots).astype(np.float64)
        of_rows: FloatArray = totals[domains.index[frame.rows]]
        return of_rows


def grouping_score(clause: CompiledGrouping) -> GroupingScore:
    """Return the score of a `spread` or `pack`."""
    if clause.share is not None:
        return ProportionalScore(clause)
    return NodeGroupingScore(clause) if clause.topology is None else DomainGroupingScore(clause)


_KEPT_TOTALS = 1024
_KEPT_TEMPLATES, _KEPT_BYTES = 256, 8 * 2**20
_BY_TAINTS = (NodeUnschedulable, TaintToleration)
_MOMENTARY = Depends.ROW | Depends.CLUSTER | Depends.SIGNAL | Depends.FEASIBLE


def _says_which_count(plugin: FilterPlugin, counting: frozenset[str]) -> bool:
    """Return whether the domains of nodes that a filter rejects do not count.

    Only a filter about what a node is says so. One about how full or how busy it is does not: a zone that is full now
    counts, or the other zones would be filled without end.
    """
    if "all" in counting:
        return False
    if isinstance(plugin, FilterClause):
        return "filtered" not in counting and not plugin.clause.depends & _MOMENTARY
    return isinstance(plugin, NodeAffinity) or ("tainted" not in counting and isinstance(plugin, _BY_TAINTS))


class SpreadFilter(_Grouping, FilterPlugin):
    """`spread … max skew N`: no domain gets more than N pods of the key above the emptiest one.

    A domain counts where it has a node that the pod could use, by the filters of the same policy: its affinity, taints
    and cordons, the policy's own filters about what nodes are. kube-scheduler calls this Honor for nodeAffinityPolicy
    and nodeTaintsPolicy. `counting` takes domains in that have no such node.
    """

    def __init__(self, clause: CompiledGrouping, filters: Iterable[FilterPlugin]) -> None:
        """Make one of a policy with these filters."""
        super().__init__(clause)
        self._usable = tuple(plugin for plugin in filters if _says_which_count(plugin, clause.counting))
        self.events = self.events.union(*(plugin.events or () for plugin in self._usable))
        self._is_static = all(plugin.scope is Scope.TEMPLATE for plugin in self._usable)
        self._kept: KeptView[PodTemplate, BoolArray] = KeptView(
            KeptBytes(_KEPT_BYTES),
            most=_KEPT_TEMPLATES,
            size_of=lambda template, counted: template.size + counted.nbytes,
        )
        """What counts for the templates asked about last, in one state of the nodes."""

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Have nothing to say where the clause's condition does not hold; else find out which nodes count."""
        return Ready(self._counted(frame)) if self._applies(frame) else SKIP

    def _counted(self, frame: Frame) -> BoolArray:
        """Return `bool[nodes]`: the nodes whose domains count. Read-only."""
        if not self._is_static:
            return self._asked(frame)
        nodes = frame.cluster.nodes
        self._kept.follow((nodes, nodes.version, nodes.images_version))
        kept = self._kept.get(frame.template)
        if kept is None:
            kept = self._asked(frame)
            self._kept.set(frame.template, kept)
        return kept

    def _asked(self, frame: Frame) -> BoolArray:
        whole = frame.at(slice(None))
        counted: BoolArray = np.ones(whole.size, np.bool_)
        for plugin in self._usable:
            counted &= probe(whole, plugin).passes()
        return counted

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes whose domain may take one more."""
        whole = frame.at(slice(None))
        counts, inside = self.domain_counts(whole)
        counted = self._counted(frame) if state is None else state
        if inside is not None:
            counted = counted & inside
        result: BoolArray = counts + 1 - self._least(whole, counts, counted) <= (self.clause.max_skew or 1)
        return (result if inside is None else result & inside)[frame.rows]

    def _least(self, frame: Frame, counts: FloatArray, counted: BoolArray) -> float:
        """Return the fewest pods of the key in one domain that counts.

        0 where there are fewer domains than `min domains`, as in Kubernetes' own constraints.
        """
        if not counted.any():
            return 0.0
        if self.clause.min_domains is not None and self._domains(frame, counted) < self.clause.min_domains:
            return 0.0
        return float(counts[counted].min())

    def _domains(self, frame: Frame, counted: BoolArray) -> int:
        if self.clause.topology is None:
            return int(counted.sum())
        return len(np.unique(topology(frame.cluster.nodes, self.clause.topology).index[counted]))

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return where one more pod of the key would be too many."""
        reason = self.clause.reason
        return [Rejection(Code.UNSCHEDULABLE, reason, ~self.filter(frame, state))]
