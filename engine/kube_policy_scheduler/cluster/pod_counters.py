"""Counts of pods per node, kept up to date by every placement: the base of spreading and affinity.

A counter is made when a rule or a policy first needs a set of pods; from then on a placement updates it
in O(1), and no decision scans pods. Totals per zone or rack follow from these counts (`cluster.domains`).
It belongs to the templates whose pods asked for it, and is dropped soon after the last of these pods has gone.

Sets and templates find each other by what they have in common (`cluster.pod_sets.Anchor`): very
many sets, terms or templates of one tenant do not slow down the others.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.affinity import Side, TemplateAffinity, pod_affinity
from kube_policy_scheduler.cluster.counter_kinds import (
    AmountCounter,
    Carriers,
    Counter,
    CountKey,
    DistinctCounter,
    ExtremesCounter,
    RowAmountCounter,
    counter_bytes,
)
from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.own_facts import OwnFacts, SeenPods
from kube_policy_scheduler.cluster.pod_sets import ANY, Anchor, Family, Label, PodSet, Value, Weighing, labels_of
from kube_policy_scheduler.cluster.pod_states import PodStates
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.steps import UnderWay, every, now
from kube_policy_scheduler.cluster.tallies import GroupOf, Tallies
from kube_policy_scheduler.cluster.templates_in_use import TemplatesInUse

_FIRST_CAPACITY = 64
_COUNTED_AT_ONCE = 1 << 13
"""Rows of templates that are counted before other work gets its turn: 1 to 3 ms."""
_COMPARED_AT_ONCE = 1 << 10
"""Terms that are compared with a template before other work gets its turn: 2 ms, and 12 ms if they were not read."""
_READ_AT_ONCE = 512
"""Terms of a pod: 6 ms."""
_WORK_OF_A_TEMPLATE = 8
"""In rows: so long it takes to ask whether it is in the set."""
_FOUND_AT_ONCE = 1 << 11
"""Templates whose value in a family is found before other work gets its turn: 4 ms."""
_ENTERED_AT_ONCE = 1 << 9
"""Pods that are seen by what they say of themselves, before other work gets its turn: 5 ms."""
_FEW_ROWS = 16
"""Of a template, which are counted one by one: an array costs more."""
_TERMINATING = 1 << 32
"""More than the pods of one template on one node."""
_MAX_TERMS = 4096
"""Conditions of all counters that are kept: a new template may be compared with each. Beyond it those
not used recently are dropped, and rebuilt on demand."""
MIN_COUNTER_BYTES, COUNTER_BYTES_PER_NODE = 192 * 2**20, 1536
"""So much may all counters take: the labels of pods, which tenants write, make sets of pods, and the column of one set
takes 4 to 8 bytes for each node, its smallest and largest amounts 16. Beyond it the
counters that were not used recently are dropped."""
_SPARE_SHARE = 8
"""Counters are measured when they took 1/8 of their limit more, and dropped if less than 1/8 is left."""
_DROPPED_SHARE = 4
"""Then so many are dropped that 1/4 is left."""
_MOST_GROWTH = 1024
"""Bytes by which one pod more, or a node that moves, makes a counter larger."""
_MAX_KEPT = 1024
"""Sets of totals kept, over all templates; one over hostnames takes 40 kB at 5,000 nodes."""
_LOOK_ANEW = 32
"""After more changes of carried terms a search for all terms by what they have in common is cheaper."""
"""Changes of carried terms remembered, with the terms: those of pods that are gone, too."""
_SPARE_COUNTERS = 16
"""So many more may be in the list of a template than twice those that count."""
_LISTED_BYTES, _ITEM_BYTES = 8, 96
"""Of a counter in the list of a template whose pods it counts, and of one with a weight, or a carried term."""
_LISTS_SHARE = 4
"""These lists may take 1/4 of what all may take: every template may be in the set of every counter."""


def most_counter_bytes(nodes: int) -> int:
    """Return how many bytes counters may take with this many nodes."""
    return max(MIN_COUNTER_BYTES, COUNTER_BYTES_PER_NODE * nodes)


Placed: TypeAlias = Iterable[tuple[int, Iterable[PodInfo]]]
"""Each row of the node table with the pods there."""


class CarriedTowards(NamedTuple):
    """Terms of placed pods that select pods of one template."""

    by: Mapping[Carriers, Mapping[Side, int]]
    """The weights of the terms of those that carry some, by kind and topology key."""
    kinds: frozenset[str]
    """The kinds of these terms."""
    version: int
    """Changes whenever they change."""


class _Known:
    """What a template's memo keeps of one `PodCounters`: the counters and carried terms that match the template."""

    __slots__ = (
        "_carries",
        "asked",
        "carried_at",
        "counters",
        "deaths",
        "kept",
        "labels",
        "most",
        "owner",
        "sets_version",
        "towards",
        "weighted",
        "weights",
    )

    def __init__(self, owner: PodCounters, *, template: PodTemplate) -> None:
        self.owner = owner
        self.labels = owner.namespaces.get(template.namespace)
        """Labels of the template's namespace, compared by identity: other labels may match differently."""
        self._carries: Carriers | None = None
        self.counters: list[Counter] | None = None
        """Those in which each pod of the template counts for 1; None: not searched yet."""
        self.weighted: dict[Counter, float] = {}
        """The others that count pods of the template, with what one counts for."""
        self.weights: dict[Counter, float | None] = {}
        """What a pod of the template counts for in each counter of a large set that it was compared with."""
        self.most = 0
        """With more of both, those that count no longer are dropped."""
        self.asked: dict[CountKey, None] = {}
        """The counters that its pods asked for, which are kept for them."""
        self.kept: dict[Hashable, None] = {}
        """Where totals made of counters are in its memo."""
        self.sets_version = -1
        """The version of that; while a pod of the template is placed, it is kept up to date."""
        self.deaths = 0
        self.towards = CarriedTowards({}, frozenset(), owner.next_serial())
        """Those that carry terms that select pods of the template, at a position of the log."""
        self.carried_at = -1

    def carries(self, template: PodTemplate) -> Carriers | None:
        """Return the count of those that carry the same terms as pods of the template; None: these carry none."""
        if self._carries is None and self.owner.counts_terms and (affinity := pod_affinity(template)) is not None:
            self._carries = self.owner.carriers(affinity)
        return self._carries

    def add(self, counter: Counter, weight: float) -> None:
        """Count pods of the template by one more counter; once there is a list of them."""
        if self.counters is not None and counter.counts_each_for_one:
            self.counters.append(counter)
        else:
            self.weighted[counter] = weight
        if len(self.counters or ()) + len(self.weighted) > self.most:
            self.drop_dead()

    def drop_dead(self) -> None:
        """Keep only counters that count."""
        self.counters = [counter for counter in self.counters or () if counter.live]
        self.weighted = {counter: weight for counter, weight in self.weighted.items() if counter.live}
        self.weights = {counter: weight for counter, weight in self.weights.items() if counter.live}
        self.most = 2 * (len(self.counters) + len(self.weighted)) + _SPARE_COUNTERS


class PodCounters:
    """All counters, and the terms that placed pods carry."""

    def __init__(
        self,
        in_use: TemplatesInUse | None = None,
        kept: KeptBytes | None = None,
        *,
        seen: SeenPods | None = None,
    ) -> None:
        """Start without pods.

        Args:
            in_use: the templates that have pods; None: those that have pods here.
            kept: bounds the totals that are kept for templates; None: nothing else counts with them.
            seen: how pods are seen that say something of themselves; None: as pods of their template.
        """
        self._seen = seen
        self.counts_terms = seen is None
        """Whether the terms that pods carry are kept: no set of pods that say something of themselves needs them."""
        self._own: PodCounters | None = None
        """The same pods, with what they say of themselves."""
        self._reads_own = False
        """Whether somebody asked for that since `forget_unused` was called."""
        self._followers: tuple[PodCounters, ...] = ()
        """That, and what is made in steps to take its place: they follow each change of pods and rows."""
        self._entered: set[str] | None = None
        """While pods are counted in steps: the uids of those that are counted."""
        self.in_use = TemplatesInUse() if in_use is None else in_use
        self.in_use.on_end(self._ended)
        self.namespaces: dict[str, dict[str, str]] = {}
        self.size = 0
        """Rows of the node table."""
        self.max_bytes = most_counter_bytes(0)
        """How many all counters may take with these nodes."""
        self.changes = 0
        """Grows with every change of any counter."""
        self.grown = 0
        """About how many bytes counters took, at most, since they were measured."""
        self._measured = 0
        """Of all counters, then."""
        self.compared = 0
        """With how many templates counters were compared that were made when somebody asked, and 64 for each."""
        self._counters: dict[CountKey, Counter] = {}
        self._making: dict[CountKey, Counter] = {}
        """Those that are made in steps."""
        self._counted: dict[Counter, set[PodTemplate]] = {}
        """By counter that is made in steps: the templates that it counts already."""
        self._by_anchor: dict[Anchor, dict[Counter, CountKey]] = {}
        self._terms = 0
        """Conditions of all counters."""
        self._sets_version = 0
        """Grows with every new counter."""
        self._deaths = 0
        self._carriers: WeakValueDictionary[bytes, Carriers] = WeakValueDictionary()
        self._carried: dict[Anchor, dict[Carriers, None]] = {}
        """Those of few terms that at least one placed pod carries, by what selects."""
        self._many_carried: dict[Carriers, None] = {}
        """Those of many terms: they come and go as fast as others, and are read once somebody looks."""
        self._large: dict[Counter, CountKey] = {}
        """The counters of large sets."""
        self._under_way = UnderWay()
        self._carried_changes: Journal[Carriers] = Journal(most=2 * _LOOK_ANEW)
        """Those that appeared or disappeared."""
        self._serials = count()
        self._memo_key = ("counters", id(self))
        """Of what templates keep: pods on nodes and pods on none are counted by two of us."""
        self._kept: KeptView[tuple[PodTemplate, Hashable], Measured] = KeptView(
            KeptBytes() if kept is None else kept,
            most=_MAX_KEPT,
            # no bound method: that would be a cycle, and would wait for the collector
            dropped=partial(_totals_dropped, self._memo_key),
        )
        """Totals, which templates have in their memos."""
        self._listed: dict[_Known, int] = {}
        """The bytes of the lists of templates; those that were made first are first."""
        self._listed_bytes = 0
        self._capacity = _FIRST_CAPACITY
        self._placed: dict[PodTemplate, dict[int, int]] = {}
        """Pods placed by template and row: all, and those terminating `_TERMINATING` times; small ints are shared."""
        self._templates: dict[Anchor, dict[PodTemplate, None]] = {}
        """Templates of placed pods by namespace, by label, and by their values in families."""
        self._families: dict[Family, bool] = {}
        """Whether it was made for rules that do not hold yet."""
        self._filling: set[Family] = set()
        """Those that are made in steps."""
        self._tallies = Tallies()
        self._states: PodStates | None = None
        self._at_once: Tally[Counter] | None = None
        """How many pods more, or less, each counter has, while those of one row come or go together."""

    def counter(self, pods: PodSet, *, terminating: bool, asks: PodTemplate | None = None) -> Counter:
        """Return the counter of a set of pods, made on first use.

        asks: the template for whose pods it is kept; None: it is kept until other rules hold, see `forget_unused`.
        """
        counter = self._asked(CountKey(pods, terminating), asks)
        if counter.lags:
            now(self._catch_up(counter))
        return counter

    def _asked(self, key: CountKey, asks: PodTemplate | None) -> Counter:
        counter = self._counters.get(key)
        if counter is None:
            counter = self._new(key)
            candidates = self._candidates(key.pods.anchors())
            self.compared += 64 + len(candidates)
            if key.pods.is_large:
                self._large[counter] = key
                counter.lags = dict.fromkeys(candidates)
            else:
                self._count(key, counter, candidates)
            self._introduce(key, counter)
            self._keep_counter(key, counter)
        counter.used = True
        if asks is None:
            counter.is_pinned = True
        elif asks not in counter.asked_by:
            counter.asked_by[asks] = None
            self._known(asks).asked[key] = None
            self.in_use.asked(asks)
        return counter

    def counter_in_steps(self, pods: PodSet, *, terminating: bool) -> Iterator[None]:
        """Make the counter that `counter` returns some pods at a time; a caller that needs it earlier makes it at once.

        Between two steps anything may happen. pods: a set that does not follow from labels of namespaces.
        """
        key = CountKey(pods, terminating)
        if (known := self._counters.get(key)) is not None:
            known.used = known.is_pinned = True
            return
        if key in self._making:
            return
        counter = self._making[key] = self._new(key)
        counter.is_pinned = True
        counted = self._counted[counter] = set()
        self._introduce(key, counter)
        try:
            while left := [each for each in self._candidates(pods.anchors()) if each not in counted]:
                for some in self._some_at_a_time(left):
                    placed = [template for template in some if template in self._placed]
                    self._count(key, counter, placed)
                    counted.update(placed)
                    yield
                    if key in self._counters:
                        return
                counter.settle()
                yield
                if key in self._counters:
                    return
            self._keep_counter(key, counter)
        finally:
            del self._making[key], self._counted[counter]
            if self._counters.get(key) is not counter:
                self._withdraw(key, counter)

    def reading(self, facts: OwnFacts, placed: Placed) -> PodCounters:
        """Return the counters of sets of pods that follow from what pods say of themselves, too.

        Args:
            facts: what the sets read. Pods are counted for it on first use, and from then on with each change.
            placed: each row of the node table with the pods there.
        """
        if not facts:
            return self
        self._reads_own = True
        if self._own is None or not self._own.sees(facts):
            now(self.reading_in_steps(facts, placed))
        assert self._own is not None
        return self._own

    def reading_in_steps(self, facts: OwnFacts, placed: Placed) -> Generator[None, None, None]:
        """Make what `reading` returns some nodes at a time; who asks for it earlier makes it at once.

        Between two steps anything may happen. placed: also finds what is there then.
        """
        if not facts:
            return
        self._reads_own = True
        if self._own is not None and self._own.sees(facts):
            return
        if self._own is not None and self._own._seen is not None:
            facts = facts | self._own._seen.facts
        made = PodCounters(self.in_use, seen=SeenPods(facts))
        made.namespaces, made._entered = self.namespaces, set()
        made.resize(self.size)
        self._followers = (*(() if self._own is None else (self._own,)), made)
        entered, until = made._entered, _ENTERED_AT_ONCE
        try:
            for row, pods in placed:
                for pod in [each for each in pods if each.uid not in entered]:
                    made.place(pod, row)
                if len(entered) >= until:
                    yield
                    until = len(entered) + _ENTERED_AT_ONCE
                    if made not in self._followers:
                        return
            made._entered = None
            self._own, self._followers = made, (made,)
        finally:
            if made is not self._own:
                self._followers = tuple(each for each in self._followers if each is not made)

    def sees(self, facts: OwnFacts) -> bool:
        """Return whether pods are seen by all that they say of themselves in these facts."""
        return self._seen is not None and self._seen.facts.covers(facts)

    def sees_alike(self, old: PodInfo, new: PodInfo) -> bool:
        """Return whether two states of a pod say the same of it, as far as that is read."""
        if not self._followers:  # as with most policies
            return True
        return all(each._seen is None or each._seen.facts.are_alike(old, new) for each in self._followers)

    @property
    def tell_pods_apart(self) -> bool:
        """Return whether pods of one template may count differently: by their state, or what they say of themselves."""
        return self.follows_states or self._own is not None

    @property
    def follows_states(self) -> bool:
        """Return whether the state of pods was requested since the start."""
        return self._states is not None or (self._own is not None and self._own.follows_states)

    def states(self, placed: Placed) -> PodStates:
        """Return the pods on nodes by their state, made on first use.

        placed: each row of the node table with the pods there.
        """
        if self._states is None:
            self._states = PodStates(capacity=self._capacity)
            for row, pods in placed:
                for pod in pods:
                    self._states.place(pod if self._seen is None else self._seen.now(pod), row)
        return self._states

    def state_changed(self, old: PodInfo, new: PodInfo, row: int) -> None:
        """Follow a pod whose state changed, and nothing else that matters here."""
        for each in self._followers:
            each.state_changed(old, new, row)
        if self._states is not None:
            if self._seen is not None:
                old, new = self._seen.now(old), self._seen.now(new)
            self._states.displace(old)
            self._states.place(new, row)

    @property
    def has_carried(self) -> bool:
        """Return whether any placed pod carries terms."""
        return bool(self._carried or self._many_carried)

    def carried_towards(self, template: PodTemplate) -> CarriedTowards:
        """Return the terms of placed pods, of every kind, that select pods of this template."""
        known = self._known(template)
        if known.carried_at != self._carried_changes.end:
            now(self._look(known, template))
        return known.towards

    def _look(self, known: _Known, template: PodTemplate) -> Generator[None, None, None]:
        """Find the carried terms that select pods of a template, in steps: between two of them anything may happen."""
        compared: dict[Carriers, Mapping[Side, int] | None] = {}
        while known.carried_at != self._carried_changes.end:
            changed, end = self._carried_changes.since(known.carried_at), self._carried_changes.end
            if changed is None or len(changed) > _LOOK_ANEW:
                found: dict[Carriers, Mapping[Side, int]] = {}
                near = {carriers for anchor in labels_of(template) for carriers in self._carried.get(anchor, ())}
                candidates: Iterable[Carriers] = (*near, *self._many_carried)
            else:
                found, candidates = dict(known.towards.by), changed
            for carriers in candidates:
                if not carriers.total:
                    found.pop(carriers, None)
                elif carriers not in found:
                    if carriers not in compared:
                        compared[carriers] = yield from carriers.affinity.towards(template, self.namespaces)
                    if (weights := compared[carriers]) is not None:
                        found[carriers] = weights
            if template.memo.get(self._memo_key) is not known:
                return
            if found != known.towards.by:
                kinds = frozenset([kind for weights in found.values() for kind, _ in weights])
                known.towards = CarriedTowards(found, kinds, self.next_serial())
            known.carried_at = end
            self._list(known)

    def make_affinity(self, template: PodTemplate, nodes: NodeTable) -> bool:
        """Find a part of what terms of a very large pod, and those of placed pods, select; return whether all is found.

        Between two calls anything may happen to pods and nodes.
        """
        affinity = pod_affinity(template)
        if affinity is None or not affinity.is_large:
            return self.make_ready(template, ())
        if affinity.sets is None and not nodes.under_way.go_on(
            affinity, lambda: every(_READ_AT_ONCE, affinity.asked())
        ):
            return False
        assert affinity.sets is not None
        asked = [pods for keys, pods in affinity.sets.large if any(nodes.known_label(key) is not None for key in keys)]
        return self.make_ready(template, asked)

    def make_ready(self, template: PodTemplate, sets: Iterable[PodSet]) -> bool:
        """Do a part of what is missing of what pods say of each other; return whether nothing is.

        Some terms may select pods of the template, and it may be in large sets. Between two calls anything may happen.
        sets: sets of pods that the template asks for.
        """
        known = self._known(template)
        looks = known.carried_at != self._carried_changes.end and bool(self._many_carried)
        if looks and not self._under_way.go_on(known, lambda: every(_COMPARED_AT_ONCE, self._look(known, template))):
            return False
        large = [self._asked(CountKey(pods, terminating=True), template) for pods in sets if pods.is_large]
        return not large or all(
            not counter.lags
            or self._under_way.go_on(counter, partial(every, _COMPARED_AT_ONCE, self._catch_up(counter)))
            for counter in large
        )

    def catch_up(self, template: PodTemplate) -> None:
        """Bring up to date what a template asked for."""
        if self._large:
            for key in self._known(template).asked:
                counter = self._counters[key]
                if counter.lags:
                    now(self._catch_up(counter))

    def _catch_up(self, counter: Counter) -> Generator[None, None, None]:
        """Compare the templates with a large set that were not compared with it yet, in steps."""
        key = self._large[counter]
        while counter.lags:
            template = next(iter(counter.lags))
            known = self._known(template)
            weight = yield from key.pods.weighed(template, self.namespaces)
            if template not in counter.lags or template.memo.get(self._memo_key) is not known:
                continue
            del counter.lags[template]
            known.weights[counter] = weight
            if weight is not None:
                placed = self._placed[template]
                rows = np.fromiter(placed, np.int64, len(placed))
                cells = np.fromiter(placed.values(), np.int64, len(placed))
                counter.fill_late(rows, _pods(cells, terminating=key.terminating), weight)
                self.changes += 1
                if known.counters is not None:
                    known.add(counter, weight)
                    self._list(known)
        self.grown += counter_bytes(counter)

    def keep(self, template: PodTemplate, key: Hashable, totals: Measured) -> None:
        """Keep totals made of counters in a template's memo, until that has had no pods for a while.

        Beyond a limit the oldest of any template are dropped.
        """
        self._kept.set((template, key), totals)
        template.memo[key] = totals
        self._known(template).kept[key] = None
        self.in_use.asked(template)

    def carriers(self, affinity: TemplateAffinity) -> Carriers:
        """Return the count of those that carry the same terms; one for all templates that have them."""
        found = self._carriers.get(affinity.key)
        if found is None:
            found = self._carriers[affinity.key] = Carriers(affinity, owner=self, capacity=self._capacity)
        return found

    @property
    def placed_templates(self) -> Collection[PodTemplate]:
        """Return the templates of all placed pods, those of terminating ones included."""
        return self._placed.keys()

    def pods_by_row(self, template: PodTemplate, *, terminating: bool = False) -> dict[int, int]:
        """Return how many pods of a template are on which rows, with or without terminating ones."""
        return {row: _pods(cell, terminating=terminating) for row, cell in self._placed.get(template, {}).items()}

    def group_size(self, group_of: GroupOf, group: Hashable) -> int:
        """Return how many placed pods are in a group, without those that are terminating; costs the same for any."""
        return self._tallies.size(group_of, group, self.placed_templates, self._pods_of)

    def group_templates(self, group_of: GroupOf, group: Hashable) -> Collection[PodTemplate]:
        """Return the templates of the pods that `group_size` counts; costs the same for any."""
        return self._tallies.templates(group_of, group, self.placed_templates, self._pods_of)

    def _pods_of(self, template: PodTemplate) -> int:
        return sum(self.pods_by_row(template).values())

    def forget(self, templates: Iterable[PodTemplate]) -> None:
        """Forget all counters, and leave nothing in these templates: they may outlive this."""
        for each in self._followers:
            each.forget(templates)
        self._own, self._followers = None, ()
        self._drop(list(self._counters))
        for template in templates:
            template.memo.pop(self._memo_key, None)

    def _ended(self, template: PodTemplate) -> None:
        """Drop what is kept for a template that has had no pods for a while."""
        known: _Known | None = template.memo.get(self._memo_key)
        if known is None or known.owner is not self:
            return
        for key in list(known.kept):
            self._kept.pop((template, key))
        self._unlist(known)
        del template.memo[self._memo_key]
        dropped = []
        for key in known.asked:
            counter = self._counters[key]
            del counter.asked_by[template]
            if not counter.asked_by and not counter.is_pinned:
                dropped.append(key)
        if dropped:
            self._drop(dropped)

    def forget_unused(self) -> None:
        """Drop the counters that nobody used since the last call; each takes up to 8 bytes for each node."""
        if self._own is not None:
            self._own.forget_unused()
            if not self._reads_own:
                self._followers = tuple(each for each in self._followers if each is not self._own)
                self._own = None
            self._reads_own = False
        self._drop([key for key, counter in self._counters.items() if not counter.used])
        for counter in self._counters.values():
            counter.used = False

    def forget_groups(self) -> None:
        """Use other keys for groups from now on."""
        if self._own is not None:
            self._own.forget_groups()
        self._tallies.forget()
        used = {
            a.family for key in (*self._counters, *self._making) for a in key.pods.anchors() if isinstance(a, Value)
        }
        self._families = {family: False for family, is_new in self._families.items() if is_new or family in used}
        self._forget_values()

    def _forget_values(self) -> None:
        """Find templates no longer by values in families that are gone."""
        self._templates = {
            anchor: found
            for anchor, found in self._templates.items()
            if not isinstance(anchor, Value) or anchor.family in self._families
        }

    # --- memory --------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """Return about how many bytes all counters take, with the lists of those that count each template."""
        return self._counter_bytes() + self._listed_bytes + sum([each.bytes for each in self._followers])

    def _counter_bytes(self) -> int:
        return sum([counter_bytes(counter) for counter in (*self._counters.values(), *self._making.values())])

    def make_room(self) -> None:
        """Drop the counters of pods that are gone, and others if there are more, or they take more bytes, than may be.

        A counter that is needed later is counted again. Not while a pod is decided: its totals follow several counters,
        all of which must be there.
        """
        if self._own is not None:
            self._own.make_room()
        self.in_use.let_go()
        if self._terms > _MAX_TERMS:
            self._evict()
        most = self.max_bytes
        if self._listed_bytes > most // _LISTS_SHARE:
            self._drop_lists(at_least=0)
        most -= self._listed_bytes
        if self._measured + self.grown <= most:
            return
        self._measured, self.grown = self._counter_bytes(), 0
        if self._measured <= most - most // _SPARE_SHARE:
            return
        dropped = []
        for key, counter in sorted(self._counters.items(), key=lambda each: each[1].used):  # else the oldest first
            if self._measured <= most - most // _DROPPED_SHARE:
                break
            dropped.append(key)
            self._measured -= counter_bytes(counter)
        self._drop(dropped)
        for counter in self._counters.values():
            counter.used = False

    # --- changes -------------------------------------------------------------------------------------

    def next_serial(self) -> int:
        """Return a number that was not used before."""
        return next(self._serials)

    def place(self, pod: PodInfo, row: int) -> None:
        """Count a pod on a node."""
        for each in self._followers:
            each.place(pod, row)
        if self._seen is not None:
            if self._entered is not None:
                self._entered.add(pod.uid)
            pod = self._seen.enter(pod)
        template = pod.template
        known = self._known(template)
        rows = self._placed.get(template)
        if rows is None:
            rows = self._placed[template] = {}
            self.in_use.hold(template)
            for anchor in self._places(template):
                self._templates.setdefault(anchor, {})[template] = None
            if known.sets_version != self._sets_version:
                known.counters = None
        rows[row] = rows.get(row, 0) + (1 + _TERMINATING if pod.terminating else 1)
        self._update(known, pod, row, 1)
        if self._states is not None:
            self._states.place(pod, row)

    def place_many(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """Count each pod on one of the rows: the same as `place` for each, but faster."""
        simple: dict[PodTemplate, dict[int, int]] = {}
        """The rows of templates whose pods nothing else counts."""
        tallied = Tally[PodTemplate]()
        for pod, row in zip(pods, rows, strict=True):
            template = pod.template
            cells = simple.get(template)
            if cells is not None and not pod.terminating:
                cells[row] = cells.get(row, 0) + 1
                tallied[template] += 1
                continue
            self.place(pod, row)
            if self._is_simple(template):
                simple[template] = self._placed[template]
        self._count_in_groups(tallied, 1)

    def displace_many(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """Count each pod on one of the rows no longer: the same as `displace` for each, but faster."""
        simple: dict[PodTemplate, dict[int, int]] = {}
        tallied = Tally[PodTemplate]()
        for pod, row in zip(pods, rows, strict=True):
            template = pod.template
            cells = simple.get(template)
            if cells is not None and not pod.terminating:
                left = cells[row] - 1
                if left or len(cells) > 1:  # else it is the last one
                    if left:
                        cells[row] = left
                    else:
                        del cells[row]
                    tallied[template] += 1
                    continue
            self.displace(pod, row)
            if template in self._placed and self._is_simple(template):
                simple[template] = self._placed[template]
        self._count_in_groups(tallied, -1)

    def _is_simple(self, template: PodTemplate) -> bool:
        """Return whether of the pods of a template, one of which was just counted, only rows and groups are counted."""
        known = self._known(template)
        follows = self._states is not None or self._followers or self._seen is not None
        return not (known.counters or known.weighted or known.carries(template) or follows)

    def _count_in_groups(self, number: Mapping[PodTemplate, int], step: int) -> None:
        if self._tallies.is_used:
            for template, pods in number.items():
                self._tallies.update(template, step * pods)

    def displace(self, pod: PodInfo, row: int) -> None:
        """Count a pod no longer."""
        for each in self._followers:
            each.displace(pod, row)
        if self._seen is not None:
            if self._entered is not None:
                if pod.uid not in self._entered:
                    return
                self._entered.remove(pod.uid)
            pod = self._seen.leave(pod)
        template = pod.template
        known = self._known(template)
        rows = self._placed[template]
        left = rows[row] - (1 + _TERMINATING if pod.terminating else 1)
        if left:
            rows[row] = left
        else:
            del rows[row]
        self._update(known, pod, row, -1)
        if self._states is not None:
            self._states.displace(pod)
        if not rows:
            del self._placed[template]
            self.in_use.release(template)
            for anchor in self._places(template):
                there = self._templates.get(anchor, _NO_TEMPLATES)
                there.pop(template, None)  # it is not there where a family is being made in steps
                if not there:
                    self._templates.pop(anchor, None)
            known.sets_version = self._sets_version
            for counter in self._large:
                if template in counter.lags:  # it is compared when it comes again
                    del counter.lags[template]
                    known.sets_version = -1

    @contextmanager
    def all_of(self, row: int, *, step: int) -> Iterator[None]:
        """Count the pods that come to a row meanwhile, or (step -1) leave it, together: they may be in many sets."""
        self._at_once = together = Tally[Counter]()
        try:
            yield
        finally:
            self._at_once = None
            for counter, number in together.items():
                counter.bump(row, number * step)

    def _update(self, known: _Known, pod: PodInfo, row: int, step: int) -> None:
        if self._tallies.is_used and not pod.terminating:
            self._tallies.update(pod.template, step)
        if known.counters is None:
            known.counters, known.weighted, known.deaths = [], {}, self._deaths
            for counter, weight in self._find_counters(pod.template).items():
                known.add(counter, weight)
            self._list(known)
        elif known.deaths != self._deaths:
            known.drop_dead()
            known.deaths = self._deaths
            self._list(known)
        counters = known.counters
        carries = known.carries(pod.template) if pod.template.spec.affinity is not None else None
        if counters or known.weighted or carries is not None:
            self.changes += 1
            self.grown += (len(counters) + len(known.weighted)) * _MOST_GROWTH
        if self._at_once is not None and not pod.terminating:
            self._at_once.update(counters)
        else:
            for counter in counters:
                if counter.terminating or not pod.terminating:
                    counter.bump(row, step)
        for counter, weight in known.weighted.items():
            if counter.terminating or not pod.terminating:
                counter.bump(row, step, weight)
        if carries is not None:
            self._carry(carries, row, step)

    def _known(self, template: PodTemplate) -> _Known:
        known: _Known | None = template.memo.get(self._memo_key)
        if known is None or known.owner is not self or known.labels is not self.namespaces.get(template.namespace):
            before, known = known, _Known(self, template=template)
            template.memo[self._memo_key] = known
            if before is not None and before.owner is self:
                known.asked, known.kept = before.asked, before.kept
                known.weights = {
                    counter: weight
                    for counter, weight in before.weights.items()
                    if counter in self._large and not self._large[counter].pods.reads_namespaces
                }
                self._unlist(before)
        return known

    def _list(self, known: _Known) -> None:
        """Count what the lists of a template take, and drop others if all take too much."""
        items = len(known.weighted) + sum(map(len, known.towards.by.values()))
        size = len(known.counters or ()) * _LISTED_BYTES + items * _ITEM_BYTES
        self._listed_bytes += size - self._listed.pop(known, 0)
        if not size:
            return
        self._listed[known] = size
        self._drop_lists(at_least=1)

    def _drop_lists(self, *, at_least: int) -> None:
        """Drop the lists that were made first while all take too much, but for this many templates."""
        while self._listed_bytes > self.max_bytes // _LISTS_SHARE and len(self._listed) > at_least:
            oldest = next(iter(self._listed))
            self._unlist(oldest)
            oldest.counters, oldest.weighted = None, {}
            oldest.towards, oldest.carried_at = CarriedTowards({}, frozenset(), self.next_serial()), -1

    def _unlist(self, known: _Known) -> None:
        self._listed_bytes -= self._listed.pop(known, 0)

    def _find_counters(self, template: PodTemplate) -> dict[Counter, float]:
        """Return the counters that count the pods of a template, with what one counts for."""
        found: dict[Counter, float] = {}
        if not self._by_anchor:
            return found
        anchors: Iterable[Anchor] = (*labels_of(template), *self._values_of(template))
        for anchor in anchors:
            for counter, key in self._by_anchor.get(anchor, _NO_COUNTERS).items():
                if counter in found or template not in self._counted.get(counter, (template,)):
                    continue
                if key.pods.is_large:
                    weights = self._known(template).weights
                    if counter not in weights:
                        counter.lags[template] = None
                        self.grown += _MOST_GROWTH
                        continue
                    weight = weights[counter]
                else:
                    weight = key.pods.weight(template, self.namespaces)
                if weight is not None:
                    found[counter] = weight
        return found

    def _carry(self, carriers: Carriers, row: int, step: int) -> None:
        carriers.bump(row, step)
        appeared = carriers.total == 1 and step > 0
        if not appeared and carriers.total:
            return
        affinity = carriers.affinity
        if affinity.is_large:
            if appeared:
                self._many_carried[carriers] = None
            else:
                del self._many_carried[carriers]
        for anchor in () if affinity.is_large else now(affinity.anchored()):
            there = self._carried.setdefault(anchor, {})
            if appeared:
                there[carriers] = None
            else:
                del there[carriers]
                if not there:
                    del self._carried[anchor]
        self._carried_changes.note(carriers)

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Set or (None) forget the labels of a namespace."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self.changes += 1
        if Label(name) in self._templates:
            self._drop([key for key in self._counters if key.pods.reads_namespaces])

    # --- the life of counters ------------------------------------------------------------------------

    def _new(self, key: CountKey) -> Counter:
        weighing = key.pods.weighing
        made = _COUNTERS.get(weighing)
        for anchor in key.pods.anchors():
            if isinstance(anchor, Value):
                self._add_family(anchor.family)
        if made is not None:
            counter: Counter = made(owner=self, capacity=self._capacity, terminating=key.terminating)
            return counter
        weighs = weighing is not Weighing.ONE
        return Counter(owner=self, capacity=self._capacity, weighs=weighs, terminating=key.terminating)

    def _count(self, key: CountKey, counter: Counter, templates: Iterable[PodTemplate]) -> None:
        """Count the pods of placed templates, and from now on those that are added or removed."""
        for template in templates:
            weight = key.pods.weight(template, self.namespaces)
            if weight is None:
                continue
            placed = self._placed[template]
            if len(placed) > _FEW_ROWS:
                rows = np.fromiter(placed, np.int64, len(placed))
                cells = np.fromiter(placed.values(), np.int64, len(placed))
                counter.fill_many(rows, _pods(cells, terminating=key.terminating), weight)
            else:
                for row, cell in placed.items():
                    counter.fill(row, _pods(cell, terminating=key.terminating), weight)
            known = self._known(template)
            if known.counters is not None:
                known.add(counter, weight)
                self._list(known)

    def _some_at_a_time(self, templates: Sequence[PodTemplate]) -> Iterator[list[PodTemplate]]:
        """Yield templates in order, so many at a time as one step counts."""
        some: list[PodTemplate] = []
        work = 0
        for template in templates:
            some.append(template)
            work += _WORK_OF_A_TEMPLATE + len(self._placed.get(template, ()))
            if work >= _COUNTED_AT_ONCE:
                yield some
                some, work = [], 0
        if some:
            yield some

    def _introduce(self, key: CountKey, counter: Counter) -> None:
        """Let templates find a counter."""
        for anchor in key.pods.anchors():
            self._by_anchor.setdefault(anchor, {})[counter] = key

    def _withdraw(self, key: CountKey, counter: Counter) -> None:
        """Let no template find a counter any more."""
        counter.end()
        self._large.pop(counter, None)
        self._deaths += 1
        for anchor in key.pods.anchors():
            there = self._by_anchor[anchor]
            del there[counter]
            if not there:
                del self._by_anchor[anchor]

    def _keep_counter(self, key: CountKey, counter: Counter) -> None:
        """Keep a counter that counts all pods of its set."""
        self._terms += key.pods.terms
        self.grown += counter_bytes(counter)
        self._counters[key] = counter
        self._sets_version += 1

    def _candidates(self, anchors: Iterable[Anchor]) -> Collection[PodTemplate]:
        """Return the templates of placed pods that have one of the anchors, perhaps with some others."""
        found: dict[PodTemplate, None] = {}
        for anchor in anchors:
            if anchor == ANY:
                return self._placed
            fewest: dict[PodTemplate, None] = min(
                [self._templates.get(part, _NO_TEMPLATES) for part in _parts(anchor)], key=len
            )
            found |= fewest
        return found

    def _places(self, template: PodTemplate) -> Iterator[Anchor]:
        """Return where a template is found: by its namespace, by each label in any namespace, and by its values."""
        yield Label(template.namespace)
        for key, value in template.labels.items():
            yield Label(None, key, value)
        if self._families:
            yield from self._values_of(template)

    def _values_of(self, template: PodTemplate) -> Iterator[Value]:
        for family in self._families:
            yield Value(family, family.value_of(template))

    def _add_family(self, family: Family) -> None:
        """Find placed templates by their values in a family from now on."""
        if family in self._families and family not in self._filling:
            return
        self._families[family] = False
        self._filling.discard(family)
        for template in self._placed:
            self._templates.setdefault(Value(family, family.value_of(template)), {})[template] = None

    def family_in_steps(self, family: Family) -> Iterator[None]:
        """Find placed templates by their values in a family, some at a time; earlier callers find them at once.

        It is for rules that do not hold yet, which `forget_groups` begins with. Between two steps anything may happen.
        """
        if family in self._families:
            self._families[family] = True
            return
        self._families[family] = True
        self._filling.add(family)
        try:
            left = list(self._placed)
            while left and family in self._filling:
                for template in left[-_FOUND_AT_ONCE:]:
                    if template in self._placed:
                        self._templates.setdefault(Value(family, family.value_of(template)), {})[template] = None
                del left[-_FOUND_AT_ONCE:]
                yield
            self._filling.discard(family)
        finally:
            if family in self._filling:
                self._filling.discard(family)
                del self._families[family]
                self._forget_values()

    def _evict(self) -> None:
        """Drop the counters not used since the last time, at least an eighth of all (the oldest)."""
        unused = [key for key, counter in self._counters.items() if not counter.used]
        if len(unused) * 8 < len(self._counters):
            unused = list(self._counters)[: len(self._counters) // 8]
        self._drop(unused)
        for counter in self._counters.values():
            counter.used = False

    def _drop(self, keys: Sequence[CountKey]) -> None:
        for key in keys:
            counter = self._counters.pop(key)
            for template in counter.asked_by:
                self._known(template).asked.pop(key, None)
            self._withdraw(key, counter)
            self._terms -= key.pods.terms
        self.changes += 1

    # --- rows ----------------------------------------------------------------------------------------

    def resize(self, size: int) -> None:
        """Follow the node table to a new number of rows."""
        for each in self._followers:
            each.resize(size)
        self.size, self.max_bytes = size, most_counter_bytes(size)
        if size > self._capacity:
            self._capacity = max(size, self._capacity * 2)
            for counter in (*self._counters.values(), *self._making.values(), *self._carriers.values()):
                counter.extend(self._capacity)
            if self._states is not None:
                self._states.extend(self._capacity)
            self._measured, self.grown = self._counter_bytes(), 0

    def move(self, source: int, target: int, pods: Collection[PodInfo]) -> None:
        """Follow a node (the one with these pods) from row `source` to the empty row `target`."""
        for each in self._followers:
            each.move(source, target, pods)
        if self._entered is not None:
            pods = [pod for pod in pods if pod.uid in self._entered]
        counters = (*self._counters.values(), *self._making.values())
        for counter in counters:
            counter.move(source, target)
        self.grown += len(counters) * _MOST_GROWTH
        moved = {(pod if self._seen is None else self._seen.now(pod)).template for pod in pods}
        for carriers in {self._known(template).carries(template) for template in moved}:
            if carriers is not None:
                carriers.move(source, target)
        for template in moved:
            rows = self._placed[template]
            rows[target] = rows.pop(source)
        if self._states is not None:
            self._states.move(source, target)


def _totals_dropped(memo_key: Hashable, entry: tuple[PodTemplate, Hashable], totals: Measured) -> None:
    """Forget totals that are kept no longer in the memo of their template."""
    template, key = entry
    if template.memo.get(key) is totals:
        del template.memo[key]
    known: _Known | None = template.memo.get(memo_key)
    if known is not None:
        known.kept.pop(key, None)


CellT = TypeVar("CellT", int, NDArray[np.int64])


def _pods(cell: CellT, *, terminating: bool) -> CellT:
    """Return the pods of a cell, or of each of several, with or without terminating ones."""
    total = cell % _TERMINATING
    return total if terminating else total - cell // _TERMINATING


_COUNTERS = {
    Weighing.AMOUNT: AmountCounter,
    Weighing.ROW_AMOUNT: RowAmountCounter,
    Weighing.EXTREMES: ExtremesCounter,
    Weighing.DISTINCT: DistinctCounter,
}
_NO_COUNTERS: dict[Counter, CountKey] = {}
_NO_TEMPLATES: dict[PodTemplate, None] = {}


def _parts(anchor: Anchor) -> Iterator[Anchor]:
    """Return by what templates with an anchor are found; the one or the other is enough."""
    if isinstance(anchor, Value):
        yield anchor
        return
    if anchor.namespace is not None:
        yield Label(anchor.namespace)
    if anchor.key is not None:
        yield Label(None, anchor.key, anchor.value)
