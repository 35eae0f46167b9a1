"""Victims of preemption: the importance of pods, the budgets that protect them, and the best set to evict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple
from weakref import ref

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.affinity import PodTerm
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView, Stamped
from kube_policy_scheduler.cluster.name_order import name_order
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, NodeTable
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.objects import LabelSelector, PodDisruptionBudget
from kube_policy_scheduler.cluster.pod_sets import Anchor, labels_of
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.selectors import SelectorError, label_selector
from kube_policy_scheduler.framework.kernels.changed_rows import ChangedRows
from kube_policy_scheduler.framework.status import Status
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules

_PRIORITY_SHIFT = 2**31
"""Added to every priority in sums, so that more victims of negative priority are not better."""
_MOST_KINDS_KEPT, _MOST_BYTES = 64, 130 * 10**6
"""Limits of the cached victims: kinds of pods, and bytes of them all together."""
_VICTIMS_BYTES, _ROW_BYTES = 400, 50
"""Of the victims on a node, and of a node in the columns of a kind."""
_MOST_SEARCHES = 8
"""Searches under way that are kept: 60 bytes for each node and search."""
_MOST_NAMESPACES = 1024
"""Namespaces whose budgets are kept compiled; those not used recently are recompiled on demand."""
_BUDGET_BYTES = 1024
"""Of a compiled budget."""


class Victims(msgspec.Struct, frozen=True, gc=False):
    """The pods to evict from one node, with the other members of their gangs."""

    pods: tuple[PodInfo, ...]
    """At least one, most important first."""
    violations: int
    """Victims whose eviction a PodDisruptionBudget does not allow."""
    has_gangs: bool = False
    """Whether gangs are among them, or were looked at: pods on other nodes have a say."""

    def order(self, now: float) -> tuple[int, int, int, int, float]:
        """Return the cost of these victims, for comparison: smaller is better.

        Violated budgets, the highest priority, the sum of priorities, the number, and how early the first of
        those with the highest priority started (a pod that has not started counts as started `now`).
        """
        return (*self.rank, -started(self.pods[0], now))

    rank_parts: ClassVar = ("violations", "priority", "sum of priorities", "pods")

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Return the order without the last part, which alone may depend on the time."""
        pods = self.pods
        total = sum([pod.template.priority for pod in pods]) + len(pods) * _PRIORITY_SHIFT
        # the first is of the highest priority, and of those the one that runs longest
        return self.violations, pods[0].template.priority, total, len(pods)


def started(pod: PodInfo, now: float) -> float:
    """Return when the pod started, `now` if it has not yet."""
    return now if pod.started is None else pod.started


def by_importance(pods: Iterable[PodInfo], now: float) -> list[PodInfo]:
    """Return pods sorted: higher priority first, then those that run longer, then by name."""
    return sorted(
        pods,
        key=lambda pod: (
            -pod.template.priority,
            now if pod.started is None else pod.started,
            pod.namespace,
            pod.name,
        ),
    )


class FoundVictims:
    """The victims found on nodes so far, for pods that need the same: with what they are compared by, as columns."""

    def __init__(self, size: int) -> None:
        """size: nodes."""
        self.known: BoolArray = np.zeros(size, np.bool_)
        """`bool[nodes]`"""
        self.protected: BoolArray = np.zeros(size, np.bool_)
        """`bool[nodes]`: of the known rows, those of which a budget had a say."""
        self.count = 0
        """Rows that are known."""
        self._victims = np.empty(size, np.object_)
        self._ranks: list[IntArray] = [np.zeros(size, np.int64) for _ in Victims.rank_parts]
        self._started: FloatArray = np.zeros(size)
        """Unix seconds of the first victim's start; NaN where it has not started."""
        self._lent: list[ref[_OnRows]] = []
        """Those that still look at `_victims`."""

    def __len__(self) -> int:
        return len(self.known)

    def get(self, row: int) -> Victims | None:
        """Return what was found on a row, None if nothing was."""
        found: Victims | None = self._victims[row]
        return found

    @property
    def violations(self) -> IntArray:
        """Return `int64[nodes]`: violated budgets, of known rows."""
        return self._ranks[0]

    def set_many(self, rows: Sequence[int], found: Sequence[Victims], *, protected: Sequence[bool]) -> None:
        """Keep what was found on rows; protected: of which of them a budget had a say."""
        self._settle()
        on = np.array(rows, np.int64)
        self.count += len(rows) - int(np.count_nonzero(self.known[on]))
        self.known[on] = True
        self.protected[on] = protected
        for row, victims in zip(rows, found, strict=True):
            self._victims[row] = victims
        ranks = zip(*(victims.rank for victims in found), strict=True)
        for part, values in zip(self._ranks, ranks, strict=True):
            part[on] = values
        starts = [victims.pods[0].started for victims in found]
        self._started[on] = [math.nan if each is None else each for each in starts]

    def forget(self, rows: IntArray) -> None:
        """Forget what was found on rows."""
        self._settle()
        self.count -= int(np.count_nonzero(self.known[rows]))
        self.known[rows] = False
        self._victims[rows] = None

    def resize(self, size: int) -> None:
        """Make room for this many nodes."""
        if (more := size - len(self)) <= 0:
            return
        self.known = np.concatenate((self.known, np.zeros(more, np.bool_)))
        self.protected = np.concatenate((self.protected, np.zeros(more, np.bool_)))
        self._settle()
        self._victims = np.concatenate((self._victims, np.empty(more, np.object_)))
        self._ranks = [np.concatenate((part, np.zeros(more, np.int64))) for part in self._ranks]
        self._started = np.concatenate((self._started, np.zeros(more)))

    def candidates(self, nodes: NodeTable, rows: IntArray, now: float, others: Mapping[int, Victims]) -> Candidates:
        """Return rows as candidates.

        Args:
            nodes: all of them.
            rows: of the candidates.
            now: Unix seconds.
            others: what counts on some of the rows instead of what is kept, by the place among `rows`.
        """
        victims = _OnRows(self._victims, rows)
        ranks, starts = self._ranks, self._started
        if others:
            ranks, starts = [part[rows] for part in ranks], starts[rows]
            for place, other in others.items():
                victims.settled()[place] = other
                for part, value in zip(ranks, other.rank, strict=True):
                    part[place] = value
                first = other.pods[0].started
                starts[place] = math.nan if first is None else first
        tied = np.arange(len(rows))
        where = tied if others else rows
        for part in ranks:
            values = part[where]
            is_least = values == values.min()
            if not is_least.all():
                tied, where = tied[is_least], where[is_least]
        of_tied = starts[where]
        of_tied[np.isnan(of_tied)] = now
        tied = tied[of_tied == of_tied.max()]
        self._lent = [each for each in self._lent if each() is not None]
        self._lent.append(ref(victims))
        first = int(name_order(nodes)[rows[tied]].argmin()) if len(tied) > 1 else 0

        def order(now: float) -> IntArray | None:
            if not others and victims.is_settled:
                return None  # the columns have changed since
            on = slice(None) if others else rows
            youngest = starts[on]
            youngest = -np.where(np.isnan(youngest), now, youngest)
            return np.lexsort((name_order(nodes)[rows], youngest, *(part[on] for part in reversed(ranks))))

        return Candidates(nodes.names, rows, victims, tied, first=first, order=order)

    def _settle(self) -> None:
        """Let those keep what they look at who still look at it, before it changes."""
        for each in self._lent:
            if (lent := each()) is not None:
                lent.settled()
        self._lent.clear()


class _OnRows:
    """The victims on some rows as they are now; put together when somebody needs all of them."""

    def __init__(self, whole: NDArray[np.object_], rows: IntArray) -> None:
        self._whole, self._rows = whole, rows
        self._settled: NDArray[np.object_] | None = None

    def at(self, place: int) -> Victims:
        """Return those on one row, by the place among the rows."""
        found: Victims = self._whole[self._rows[place]] if self._settled is None else self._settled[place]
        return found

    @property
    def is_settled(self) -> bool:
        """Return whether they may be those of an earlier moment."""
        return self._settled is not None

    def settled(self) -> NDArray[np.object_]:
        """Return `object[rows]`."""
        if self._settled is None:
            self._settled = self._whole[self._rows]
        return self._settled


class Candidates(Mapping[str, Victims]):
    """Nodes where evictions make room, with the victims; put together by name when somebody looks."""

    def __init__(
        self,
        names: Sequence[str],
        rows: IntArray,
        victims: Sequence[Victims] | _OnRows,
        best: IntArray,
        *,
        first: int,
        order: Callable[[float], IntArray | None] = lambda _: None,
    ) -> None:
        """Make one.

        Args:
            names: of all nodes.
            rows: of the candidates among them.
            victims: on each of these rows.
            best: positions among the rows: the candidates of which none is better.
            first: which of the best is the first by name.
            order: returns the positions among the rows, the best first, for a time in Unix seconds; None: it is not
                known faster than by comparing victims.
        """
        self._names, self._order = names, order
        self._rows = rows
        self._victims = victims
        self._best = best
        self._first = int(best[first])

    @cached_property
    def _by_name(self) -> dict[str, Victims]:
        names = map(self._names.__getitem__, self._rows.tolist())
        victims = self._victims.settled() if isinstance(self._victims, _OnRows) else self._victims
        return dict(zip(names, victims, strict=True))

    def __getitem__(self, name: str) -> Victims:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def ties(self) -> tuple[str, ...]:
        """Return the best candidates, by name."""
        return tuple(sorted(map(self._names.__getitem__, self._rows[self._best].tolist())))

    def first(self) -> tuple[str, Victims]:
        """Return the best candidate, of several the first by name, with its victims."""
        return self._at(self._first)

    def in_order(self, now: float) -> Iterator[tuple[str, Victims]]:
        """Return the candidates, the best first, equal ones by name. now: Unix seconds."""
        places = self._order(now)
        if places is None:
            return iter(sorted(self.items(), key=lambda each: (each[1].order(now), each[0])))
        return map(self._at, places.tolist())

    def _at(self, place: int) -> tuple[str, Victims]:
        victims = self._victims
        found = victims.at(place) if isinstance(victims, _OnRows) else victims[place]
        return self._names[self._rows.item(place)], found


class Search:
    """What one pod's search found on nodes so far, but for what `KeptVictims` has for all pods that are alike."""

    def __init__(self, nodes: NodeTable) -> None:
        """nodes: all of them."""
        self.victims: dict[int, Victims] = {}
        """By row, of rows that are in no column."""
        self.rejected: dict[int, Status] = {}
        """By row: why it remains rejected without all victims."""
        self.has: BoolArray = np.zeros(nodes.size, np.bool_)
        """`bool[nodes]`: the rows of these."""
        self.is_rejected: BoolArray = np.zeros(nodes.size, np.bool_)
        """`bool[nodes]`"""
        self.is_dated = False
        """Whether nodes have changed since rows were rejected: filters may read more than the row itself."""
        self._columns: FoundVictims | None = None
        """The others, where nothing is kept for other pods."""
        self._nominated: Collection[int] = ()
        """Rows with nominated pods in the last turn."""
        self._changes = ChangedRows(nodes, nodes.static_changes, nodes.dynamic_changes)

    def columns(self) -> FoundVictims:
        """Return the victims that are kept as columns."""
        if self._columns is None:
            self._columns = FoundVictims(len(self.has))
        return self._columns

    def set(self, row: int, found: Victims | Status) -> None:
        """Keep what was found on a row."""
        self.has[row] = True
        if isinstance(found, Victims):
            self.victims[row] = found
        else:
            self.rejected[row] = found
            self.is_rejected[row] = True

    def forget(self, rows: IntArray) -> None:
        """Forget what was found on rows."""
        for row in rows[self.has[rows]].tolist():
            self.victims.pop(row, None)
            self.rejected.pop(row, None)
        self.has[rows] = self.is_rejected[rows] = False
        if self._columns is not None:
            self._columns.forget(rows)

    def begin_turn(self, nominated: Collection[int]) -> None:
        """Forget what was found on rows that have nominated pods, or had some in the last turn: these may have changed.

        nominated: the rows with nominated pods now.
        """
        if self._nominated or nominated:
            self.forget(np.array(list({*self._nominated, *nominated}), np.int64))
            self._nominated = tuple(nominated)

    def pause(self) -> None:
        """Pass over the changes of this turn: those of dry runs, which were undone."""
        self._changes.take()

    def refresh(self, nodes: NodeTable) -> bool:
        """Forget what was found on rows that changed since `pause`; return whether the rest still stands."""
        if self._changes.nodes is not nodes or len(self.has) != nodes.size:
            return False
        rows = self._changes.take()
        if rows is None or isinstance(rows, slice):
            return False
        if rows:
            self.forget(np.array(rows, np.int64))
            self.is_dated = True
        return True


class KeptVictims:
    """What preemption found on nodes where only resources matter, kept until a pod of the node changes.

    Many preemptors are alike, and each checks a tenth of all nodes.
    """

    def __init__(self) -> None:
        self._searches: KeptView[Hashable, Search] = KeptView(most=_MOST_SEARCHES)
        """Those that go on in another turn, by pod and rules."""
        self._found: KeptView[Hashable, tuple[ChangedRows, _Selectors, FoundVictims]] = KeptView(
            KeptBytes(_MOST_BYTES),
            most=_MOST_KINDS_KEPT,
            size_of=lambda _, kept: _VICTIMS_BYTES * kept[2].count + _ROW_BYTES * len(kept[2]),
        )
        self._selectors: tuple[object, _Selectors] = (None, _Selectors(-1, {}))
        """Of which store of objects, and what they are."""

    @property
    def are_searched(self) -> bool:
        """Return whether searches go on in another turn."""
        return len(self._searches) > 0

    def search(self, nodes: NodeTable, key: Hashable) -> Search:
        """Return what earlier turns of a search found, to be added to; key: of the pod and its rules."""
        known = self._searches.pop(key)
        return known if known is not None and known.refresh(nodes) else Search(nodes)

    def pause(self, key: Hashable, search: Search) -> None:
        """Keep what a search found, which goes on in another turn."""
        search.pause()
        self._searches.set(key, search)

    def take_in_changes(self, nodes: NodeTable) -> None:
        """Let searches forget what they found on nodes that have changed."""
        for key, search in self._searches.items():
            if not search.refresh(nodes):
                self._searches.pop(key)

    def pass_over_changes(self) -> None:
        """Let searches keep what they found: nodes are again as they were when they were last asked about them."""
        for _, search in self._searches.items():
            search.pause()

    def of(self, cluster: Cluster, wanted: Hashable, priority: int) -> FoundVictims:
        """Return the victims by row, for additions: of pods with equal priority and requests."""
        nodes, budgets = cluster.nodes, self._budgets_now(cluster)
        key = wanted, priority
        known = self._found.pop(key)
        if known is not None and known[0].nodes is nodes and known[1].by_name == budgets.by_name:
            changes, before, found = known
            rows = changes.take()
            if rows is not None and not isinstance(rows, slice):
                found.forget(np.array([row for row in rows if row < len(found)], np.int64))
                if before.version != budgets.version:
                    found.forget((found.known & found.protected).nonzero()[0])
                found.resize(nodes.size)
                self._found.set(key, (changes, budgets, found))
                return found
        found = FoundVictims(nodes.size)
        self._found.set(key, (ChangedRows(nodes, nodes.dynamic_changes), budgets, found))
        return found

    def _budgets_now(self, cluster: Cluster) -> _Selectors:
        """Return which pods the budgets are about: their status, which each eviction changes, is left out."""
        store, version = cluster.store, cluster.store.version(PodDisruptionBudget)
        if self._selectors[0] is not store or self._selectors[1].version != version:
            by_name = {object_key(each.metadata): each.spec.selector for each in cluster.all(PodDisruptionBudget)}
            self._selectors = store, _Selectors(version, by_name)
        return self._selectors[1]


class _Selectors(NamedTuple):
    """The selectors of all budgets, by `namespace/name`."""

    version: int
    by_name: Mapping[str, LabelSelector | None]


class _Compiled(NamedTuple):
    """The budgets of one namespace, found by the labels that their selectors require."""

    by_anchor: Mapping[Anchor, Sequence[tuple[PodDisruptionBudget, PodTerm]]]

    @classmethod
    def of(cls, budgets: Iterable[PodDisruptionBudget], rules: KubernetesRules) -> _Compiled:
        """Compile budgets; one without a selector, or whose selector is not valid, matches no pod.

        Nor does the selector `{}` up to 1.37: kube-scheduler follows neither the API nor the eviction there.
        """
        empty_protects = Feature.EMPTY_SELECTOR_PROTECTS in rules
        by_anchor: dict[Anchor, list[tuple[PodDisruptionBudget, PodTerm]]] = {}
        for budget in budgets:
            try:
                selector = label_selector(budget.spec.selector)
            except SelectorError:
                continue
            if selector is not None and (empty_protects or not selector.empty):
                pods = PodTerm(frozenset((budget.metadata.namespace,)), selector)
                for anchor in pods.anchors():
                    by_anchor.setdefault(anchor, []).append((budget, pods))
        return cls(by_anchor)

    def matching(self, template: PodTemplate) -> list[PodDisruptionBudget]:
        """Return the distinct budgets that protect pods of a template."""
        found: dict[str, PodDisruptionBudget] = {}
        for anchor in labels_of(template) if self.by_anchor else ():
            for budget, pods in self.by_anchor.get(anchor, ()):
                if pods.matches(template, {}):
                    found[budget.metadata.name] = budget
        return list(found.values())


def _size(namespace: str, kept: Stamped[_Compiled]) -> int:
    return len(namespace) + _BUDGET_BYTES * sum(map(len, kept.value.by_anchor.values()))


Disruptions = tuple[tuple[tuple[str, str], int, int], ...]
"""Budgets by namespace and name: how many of some pods each protects, and how many evictions it allows."""


class Disrupted(msgspec.Struct):
    """What pods that go one after the other have taken from PodDisruptionBudgets."""

    pods: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """By budget."""

    def take(self, disruptions: Disruptions) -> None:
        """Count pods as gone."""
        for budget, pods, _ in disruptions:
            self.pods[budget] += pods

    def violates(self, disruptions: Disruptions) -> bool:
        """Return whether a budget does not allow that further pods go."""
        return any(self.pods[budget] + pods > allowed for budget, pods, allowed in disruptions)

    def copy(self) -> Disrupted:
        """Return the same, to go on from here."""
        return Disrupted(self.pods.copy())


class Budgets:
    """The PodDisruptionBudgets of a cluster, in their current state."""

    def __init__(self, cluster: Cluster) -> None:
        self._store = cluster.store
        self._rules = cluster.rules
        self._compiled: KeptView[str, Stamped[_Compiled]] = cluster.view(
            "disruption budgets", most=_MOST_NAMESPACES, size_of=_size
        )
        """By namespace, with the version that they were compiled of."""
        self._protecting: dict[PodTemplate, list[PodDisruptionBudget]] = {}

    def _of(self, template: PodTemplate) -> list[PodDisruptionBudget]:
        found = self._protecting.get(template)
        if found is None:
            may_match = template.labels or Feature.EMPTY_SELECTOR_PROTECTS in self._rules
            found = self._protecting[template] = self._in(template.namespace).matching(template) if may_match else []
        return found

    def _in(self, namespace: str) -> _Compiled:
        version = self._store.group_version(PodDisruptionBudget, namespace)
        group = self._store.group
        return self._compiled.current(
            namespace, version, lambda: _Compiled.of(group(PodDisruptionBudget, namespace), self._rules)
        )

    def protecting(self, pod: PodInfo) -> Sequence[PodDisruptionBudget]:
        """Return the budgets that protect a pod."""
        return self._of(pod.template)

    def covers(self, pods: Iterable[PodInfo]) -> bool:
        """Return whether any budget protects any of some pods."""
        protecting = self._protecting
        for pod in pods:
            budgets = protecting.get(pod.template)
            if budgets or (budgets is None and self._of(pod.template)):
                return True
        return False

    def forbid(self, pod: PodInfo) -> bool:
        """Return whether a budget does not allow the eviction of one pod alone."""
        counted = (b for b in self._of(pod.template) if pod.name not in (b.status.disrupted_pods or ()))
        return any(budget.status.disruptions_allowed < 1 for budget in counted)

    def disruptions(self, pods: Sequence[PodInfo]) -> Disruptions:
        """Return what the eviction of some pods together takes from each budget."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for pod in pods if self.covers(pods) else ():
            for budget in self._of(pod.template):
                if pod.name not in (budget.status.disrupted_pods or ()):
                    key = budget.metadata.namespace, budget.metadata.name
                    found[key] = found.get(key, (0, 0))[0] + 1, budget.status.disruptions_allowed
        return tuple((key, *numbers) for key, numbers in found.items())

    def split(self, pods: Sequence[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Return the pods whose eviction no budget allows, and the others; both in the given order.

        Each pod in turn takes one disruption from every budget that matches it and has not recorded it yet.
        """
        left: dict[tuple[str, str], int] = {}
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        protecting = self._protecting
        for pod in pods:
            violates = False
            budgets = protecting.get(pod.template)
            for budget in self._of(pod.template) if budgets is None else budgets:
                if pod.name not in (budget.status.disrupted_pods or ()):
                    key = budget.metadata.namespace, budget.metadata.name
                    left[key] = left.get(key, budget.status.disruptions_allowed) - 1
                    violates = violates or left[key] < 0
            (violating if violates else others).append(pod)
        return violating, others
