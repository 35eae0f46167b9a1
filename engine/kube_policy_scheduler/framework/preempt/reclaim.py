"""Reclaim: which pods of other queues to evict, so that a pod or gang gets what its queue is guaranteed, or its share.

Decides only; evicts nothing. Where a pod lacks resources of a node, only pods of that node make room, so nodes are
tried one after the other, that of the first victim first. Victims are taken away on the real columns until the pod or
the whole gang fits; then as many as possible come back, the last first. So all victims together are enough, and without
any one of them they are not.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import combinations, islice

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.node_devices import SHARE_SUFFIX
from kube_policy_scheduler.cluster.node_info import HOSTNAME_LABEL
from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.guarantees import Guarantees, Parts, Unit, is_below, lead, within
from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaUsage
from kube_policy_scheduler.cluster.search_work import search_work
from kube_policy_scheduler.framework.evaluate.nominations import nominated_for
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.preempt.departures import Departures
from kube_policy_scheduler.framework.preempt.rights import Rights, holds_counted
from kube_policy_scheduler.framework.preempt.units import QueueUnits, priority_of
from kube_policy_scheduler.framework.preempt.victims import Budgets, Disrupted, Disruptions
from kube_policy_scheduler.framework.preempt.whole_groups import in_group_that_stays
from kube_policy_scheduler.framework.quota import QuotaRules, ReclaimRule, nominated_before, parts_of
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims

MOST_DISPLACED = 4096
"""Pods that one attempt takes away at most: about 0.2 s."""
MOST_GUESSES = 8
"""How many sets of resources are tried of which a gang may be short: its places say it, and victims say its places."""
MOST_ORDERS = 4
"""In how many orders victims are tried at a place, so that shares allow what the first order leads past.

Also how many nodes are tried whose victims go first for a gang, so that it is short there of what is guaranteed to it.
"""
RETRY_SECONDS = 5.0
"""A pod for which nobody could be evicted is not tried again for this long."""


class NotReclaimed(Enum):
    """Why `reclaim` evicts nobody, as people read it."""

    WAITS = "waits until evicted pods are gone"
    PATIENCE = "not before this pod has waited for"
    """Followed by how long, from when its queue could guarantee it."""
    RETURNED = "not yet, because pods of its workload were evicted, evicted others, and were evicted again"
    SHARED = "not for a fairer share, because pods of its workload evicted others for it and were evicted since"
    NO_VICTIMS = "no pods that could be evicted would make room"
    CUT = f"{MOST_DISPLACED:,} pods that could be evicted would not make room, and more are not tried at a time"


class Reclaimed(msgspec.Struct, frozen=True):
    """The result of an attempt."""

    victims: tuple[PodInfo, ...] = ()
    places: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By uid: the nodes of the pod, or of the members of its gang, once the victims are gone."""
    why: NotReclaimed | None = None
    """Why nobody is evicted; None if somebody is, or nothing is to be said."""
    after_seconds: float = 0.0
    """How long a pod waits first."""
    look_later: bool = False
    """Whether time alone may change the answer."""
    short: tuple[str, ...] = ()
    """The resources of which there is too little, for which the victims go."""
    shares: bool = False
    """Whether some of the victims go so that shares become fairer; else all of them for what is guaranteed."""

    @property
    def sharing(self) -> tuple[str, ...]:
        """Return the uids of those that get the room for a fairer share."""
        return tuple(self.places) if self.shares else ()

    @property
    def waits(self) -> bool:
        """Return whether pods that are terminating will make the room."""
        return self.why is NotReclaimed.WAITS

    @property
    def found_nobody(self) -> bool:
        """Return whether it was searched for victims, and there are none, or too many."""
        return self.is_cut or self.why is NotReclaimed.NO_VICTIMS

    @property
    def is_cut(self) -> bool:
        """Return whether some that could have been evicted were not tried."""
        return self.why is NotReclaimed.CUT

    @property
    def is_patient(self) -> bool:
        """Return whether the pod has not waited for long enough."""
        return self.why is NotReclaimed.PATIENCE

    @property
    def message(self) -> str:
        """Return why nobody is evicted, for people; "" if somebody is, or nothing is to be said."""
        if self.why is None:
            return ""
        seconds = f" {self.after_seconds:g}s" if self.why is NotReclaimed.PATIENCE else ""
        return f"reclaim: {self.why.value}{seconds}."


NOTHING_RECLAIMED = Reclaimed()


class OneNode(msgspec.Struct, frozen=True):
    """Where a pod alone may be placed, as the cluster stands when it is asked."""

    rows: IntArray
    """Those that nothing rejects for good, ascending."""
    feasible: Callable[[], tuple[IntArray, FloatArray]]
    """Returns the rows on which it fits now, and their scores."""

    def fits(self, row: int) -> bool:
        """Return whether the pod fits on a row now."""
        return bool((self.feasible()[0] == row).any())

    def best(self, rows: Collection[int]) -> int | None:
        """Return the best of some rows on which it fits now; None: it fits on none."""
        feasible, totals = self.feasible()
        among = np.isin(feasible, np.fromiter(rows, np.int64, len(rows)))
        feasible, totals = feasible[among], totals[among]
        return int(feasible[int(totals.argmax())]) if len(feasible) else None


def reclaim(
    frame: Frame,
    rules: QuotaRules,
    pods: Sequence[PodInfo],
    places: Callable[[], Mapping[str, str] | None],
    *,
    own: frozenset[Hashable] = frozenset(),
    alone: OneNode | None = None,
) -> Reclaimed:
    """Return whom to evict so that a pod, or what its gang needs, fits.

    Args:
        frame: of the pod that asks.
        rules: the queues.
        pods: that need room: the pod, or all members that its gang lacks.
        places: returns nodes by uid for them, as the cluster stands, which it leaves unchanged; None: they do not fit.
        own: the gangs of the pod, which are no victims.
        alone: where the pod may be placed; None: it is a gang.
    """
    rule = rules.reclaim_of(frame)
    usage = frame.cluster.track_usage(rules.tree)
    if rule is None or usage.quota_of(frame.template) is None or frame.template.spec.preemption_policy == "Never":
        return NOTHING_RECLAIMED
    frame.cluster.forget_old_evictions(frame.steady)
    returning, otherwise = frame.cluster.returning_evictors, NOTHING_RECLAIMED
    if rule.fair and not all(map(returning.may_share, pods)):
        rule = msgspec.structs.replace(rule, fair=False)
        otherwise = Reclaimed(why=NotReclaimed.SHARED, look_later=True)
    with usage.without_promises(pod.uid for pod in pods):
        asks = unit_that_asks(frame, rules, pods)
        gains = any(may_gain(usage, queue, amounts, rule) for queue, amounts in asks.parts)
        since = frame.queued if frame.entitled is None else frame.entitled
        evicts = False
        if gains and frame.now < since + rule.after_seconds:
            otherwise = Reclaimed(why=NotReclaimed.PATIENCE, after_seconds=rule.after_seconds, look_later=True)
        elif gains and not returning.may_evict(frame.pod, frame.steady):
            otherwise = Reclaimed(why=NotReclaimed.RETURNED, look_later=True)
        else:
            evicts = gains
        if not evicts and not any(frame.cluster.is_nominated(pod.uid) for pod in pods):
            return otherwise
        frame = msgspec.structs.replace(frame, together=asks.parts)
        attempt = _Attempt(frame, rules, rule, usage, asks, places, own, alone)
        with frame.cluster.ledger.silent(), search_work(frame.cluster.store).at_once():
            try:
                if attempt.waits():
                    return Reclaimed(why=NotReclaimed.WAITS)
                return attempt.run() if evicts else otherwise
            finally:
                attempt.away.put_all_back()


def unit_that_asks(frame: Frame, rules: QuotaRules, pods: Sequence[PodInfo]) -> Unit:
    """Return the pod of a frame, or pending pods with it that its gang lacks, as a unit."""
    usage, size_of = frame.cluster.track_usage(rules.tree), frame.cluster.counters.group_size
    gangs = rules.gangs_of(frame)
    return Unit(
        tuple(sorted(pods, key=lambda pod: pod.uid)),
        parts_of(usage, pods),
        priority_of(pods),
        math.inf,
        min((each.group for each in gangs), key=str, default=None),
        is_surplus=bool(gangs) and all(each.filled(size_of) >= each.size for each in gangs),
        is_placed=False,
    )


def _of_others(units: QueueUnits, asks: Unit, queue: Quota) -> Sequence[Unit]:
    """Return the units of a queue, without what runs or is tried out of the gang that asks."""
    found = units.of(queue)
    if asks.gang is None or asks.is_surplus:
        return found
    return [unit for unit in found if unit.gang != asks.gang]


def _with_its_gang(asks: Unit, gangs: Sequence[GangRequirement]) -> Unit:
    """Return a member of a gang that lacks its size with what all that it needs count for, if they are alike."""
    if asks.is_surplus or not gangs:
        return asks
    size = max(each.size for each in gangs)
    parts = tuple((queue, tuple((r, size * amount) for r, amount in amounts)) for queue, amounts in asks.parts)
    return msgspec.structs.replace(asks, parts=parts)


def protected(frame: Frame, rules: QuotaRules) -> Callable[[PodInfo], bool]:
    """Return which pods must not be evicted for a pod of higher priority, because of their queues.

    A pod of no queue follows Kubernetes' rules against others of none; of queues it evicts only what they borrow at all
    levels.
    """
    cluster, now = frame.cluster, frame.now
    cluster.forget_old_evictions(frame.steady)
    usage = cluster.track_usage(rules.tree)
    units = QueueUnits(cluster, usage, rules, now=now, without=(frame.pod.uid,))
    asks = _with_its_gang(unit_that_asks(frame, rules, (frame.pod,)), rules.gangs_of(frame))
    guarantees = Guarantees(usage, partial(_of_others, units, asks))
    rights: Rights | None = None
    if asks.parts:
        rights = Rights(usage, guarantees, asks, frozenset(), rules.reclaim_of(frame), now)

    def is_protected(victim: PodInfo) -> bool:
        queue = usage.quota_of(victim.template)
        if queue is None or usage.is_leaving(victim.uid):
            return False
        unit = units.unit_of(victim)
        if rights is None:
            return guarantees.strongest(unit, queue.path()) is not None
        return not rights.may_preempt(unit)

    return is_protected


def may_gain(usage: QuotaUsage, queue: Quota, request: Amounts, rule: ReclaimRule) -> bool:
    """Return whether some queue could have to give something back to this one, by guarantees alone."""
    if rule.fair:
        return bool(request)
    wanted = dict(request)
    for each in queue.path():
        leads = lead(usage, each, request)
        if leads is not None and each.will(leads) + wanted[leads] <= each.minimum[leads]:
            return True
    return False


class _Short(msgspec.Struct, frozen=True):
    """The resources that are short."""

    names: frozenset[str]
    """All resources, by name."""
    places: frozenset[int]
    """Those that are counted, by place."""
    by_quota: tuple[tuple[int, Quota], ...] = ()
    """Those that a queue has too little of, with the queue whose limit is reached."""

    def is_held_by(self, unit: Unit) -> bool:
        """Return whether a unit holds any of them."""
        return self.counts_for(unit) or self.is_asked_by(unit.pods)

    def counts_for(self, unit: Unit) -> bool:
        """Return whether a unit holds any that are counted: the same for all that count alike."""
        return holds_counted(unit, self.places)

    def is_asked_by(self, pods: Iterable[PodInfo]) -> bool:
        """Return whether pods request any of them."""
        return any(name == "pods" or pod.demand.requests.get(name) for pod in pods for name in self.names)


class _Attempt:
    """Evictions that are tried out, and undone at the end."""

    def __init__(
        self,
        frame: Frame,
        rules: QuotaRules,
        rule: ReclaimRule,
        usage: QuotaUsage,
        asks: Unit,
        places: Callable[[], Mapping[str, str] | None],
        own: frozenset[Hashable],
        alone: OneNode | None,
    ) -> None:
        self.frame, self.rules, self.rule, self.usage = frame, rules, rule, usage
        self.asks, self.places, self.own, self.alone = asks, places, own, alone
        cluster = frame.cluster
        self.away = Departures(cluster)
        """Pods that were taken away."""
        self.budgets = Budgets(cluster)
        self.its_group_stays = in_group_that_stays(cluster)
        self.rows_by_node: dict[str, frozenset[int]] = {}
        """By node: its row alone, which all units there share."""
        self.wanted = frozenset(name for pod in asks.pods for name in pod.demand.requests)
        """The resources that it asks for."""
        specs = [template.spec for template in {pod.template for pod in asks.pods}]
        self.sees_pods = any(spec.affinity or spec.topology_spread_constraints for spec in specs)
        """Whether pods that ask exclude others, or need them."""
        self.shapes: dict[str, Hashable] = {}
        """By node: its labels, taints and conditions."""
        self.tried = False
        """Whether any pod could have been evicted."""
        self.is_cut = False
        """Whether some would have to go that were not tried, see `MOST_DISPLACED`."""
        self.only: bool | None = None
        """Whether victims go for a guarantee alone (True), or for shares alone (False)."""
        self.mixed = False
        """Whether victims of both kinds were taken, and what remained of them was not legal."""
        self.units = QueueUnits(cluster, usage, rules, now=frame.now, without={pod.uid for pod in asks.pods})
        self.guarantees = Guarantees(usage, partial(_of_others, self.units, asks))

    @property
    def cluster(self) -> Cluster:
        """Return the cluster."""
        return self.frame.cluster

    def waits(self) -> bool:
        """Take away what ends already; return whether that is enough."""
        self.away.take(self.cluster.leaving())
        freed = has_claims(self.frame.template, self.cluster) and self.away.free_abandoned()
        return bool(self.away or freed) and self.places() is not None

    def run(self) -> Reclaimed:
        """Try evictions out, beside what ends already."""
        for only in (None, True, False):
            if only is not None and not self.mixed:
                break
            self.only = only
            found = self._of_gang() if self.alone is None else self._of_pod(self.alone)
            if found is not None:
                return found
        nobody = NotReclaimed.CUT if self.is_cut else NotReclaimed.NO_VICTIMS
        return Reclaimed(why=nobody if self.tried else None, look_later=True)

    # --- what is short -----------------------------------------------------------------------------------

    def _short_by_quota(self) -> tuple[tuple[int, Quota], ...]:
        found: list[tuple[int, Quota]] = []
        earlier: list[tuple[Quota, Amounts]] = []
        gang = frozenset(pod.uid for pod in self.asks.pods)
        first = max(self.asks.pods, key=lambda pod: pod.priority)  # who loses room to one of them loses it to the gang
        for queue, amounts in self.asks.parts:
            before = nominated_before(self.cluster, self.usage, queue, first, self.asks.parts, gang=gang)
            with self.usage.counting([*before, *earlier]):
                found += self.usage.short(queue, amounts)
            earlier.append((queue, amounts))
        return tuple(dict.fromkeys(found))

    def _short_of(self, names: Iterable[str], by_quota: tuple[tuple[int, Quota], ...]) -> _Short:
        tree = self.usage.tree
        by_name = {name: place for place, name in enumerate(tree.resources)}
        every = {*names, *(tree.resources[place] for place, _ in by_quota)}
        requested = {place for _, amounts in self.asks.parts for place, _ in amounts}
        places = {by_name[name] for name in every if name in by_name}
        # which devices of a class are free no column tells
        places |= requested & set(tree.classes.values())
        return _Short(frozenset(every), frozenset(places), by_quota)

    def _free(self, name: str, rows: IntArray, pods: Sequence[PodInfo] | None = None) -> IntArray:
        """Return `int64[rows]`: what is free of a resource beside what nominated pods keep.

        pods: those that ask, and are to be on the node; None: any of those that ask.
        """
        nodes = self.cluster.nodes
        if name == "pods":
            free = nodes.allocatable(name)[rows] - nodes.pod_count[rows]
        else:
            free = nodes.allocatable(name)[rows] - nodes.requested(name)[rows]
        for node_name in self.cluster.nominated:
            row = nodes.rows.get(node_name, -1)
            at = int(rows.searchsorted(row))
            if row >= 0 and at < len(rows) and rows[at] == row:
                for other in self._kept_from(pods or self.asks.pods, node_name):
                    free[at] -= 1 if name == "pods" else other.demand.requests.get(name, 0)
        return free

    def _kept_from(self, pods: Sequence[PodInfo], node_name: str) -> Iterable[PodInfo]:
        """Return the pods nominated to a node that keep their room from all of these pods."""
        kept = {pod.uid: pod for pod in self.cluster.nominated[node_name].values()}
        for pod in {pod.template: pod for pod in pods}.values():
            known = nominated_for(msgspec.structs.replace(self.frame, pod=pod), node_name)
            kept = {other.uid: other for other in known if other.uid in kept}
        return [other for uid, other in kept.items() if all(uid != pod.uid for pod in self.asks.pods)]

    # --- a pod alone -------------------------------------------------------------------------------------

    def _of_pod(self, alone: OneNode) -> Reclaimed | None:
        """Try nodes by what the pod is short of there, those where it is short of least first."""
        rows, by_quota = alone.rows, self._short_by_quota()
        wanted = {**self.frame.pod.demand.requests, "pods": 1}
        names = sorted(name for name in wanted if name not in self.cluster.ignored_resources)
        masks = np.zeros(len(rows), np.int64)
        for bit, name in enumerate(names):
            masks |= (self._free(name, rows) < wanted[name]).astype(np.int64) << min(bit, 62)
        for mask in sorted(np.unique(masks).tolist(), key=lambda mask: (mask.bit_count(), mask)):
            lacks = [name for bit, name in enumerate(names) if mask >> min(bit, 62) & 1]
            short = self._short_of(lacks, by_quota)
            here = rows[masks == mask].tolist()
            found = self._short_there(alone, here, short) if lacks else self._short_of_quota(alone, here, short)
            if found is not None:
                return found
        return None

    def _short_of_quota(self, alone: OneNode, rows: Sequence[int], short: _Short) -> Reclaimed | None:
        """Try to make room in the queues alone: some of these rows have it."""
        pool = self._pool(short, frozenset(rows) if not short.by_quota else None)
        row: int | None = None

        def fits() -> bool:
            nonlocal row
            row = alone.best(rows)
            return row is not None

        for some in self._in_orders(pool):
            found = self._reclaimed(some, fits, short, lambda: self._place_on(row)) if self._take(some, fits) else None
            if found is not None:
                return found
            self._give_back(some.gone)
        return None

    def _short_there(self, alone: OneNode, rows: Sequence[int], short: _Short) -> Reclaimed | None:
        """Try rows that lack the same, that of the unit that would go first first."""
        pool = self._pool(short, frozenset(rows), quota_too=bool(short.by_quota))
        for row in pool.rows_in_order(frozenset(rows)):
            if self._note_bound():
                break
            fits, places = partial(alone.fits, row), partial(self._place_on, row)
            for there in self._in_orders(pool.on(row)):
                done = self._take(there, fits)
                if not done and short.by_quota:
                    beyond = pool.beyond(there)
                    done = self._take(beyond, fits)
                    there.follow(beyond)
                found = self._reclaimed(there, fits, short, places) if done else None
                if found is not None:
                    return found
                self._give_back(there.gone)
        return None

    def _place_on(self, row: int | None) -> Mapping[str, str]:
        assert row is not None
        return {self.frame.pod.uid: self.cluster.nodes.infos[row].name}

    # --- a gang ------------------------------------------------------------------------------------------

    def _of_gang(self) -> Reclaimed | None:
        """Try sets of resources of which a gang may be short, the smallest first: what is short says who may go.

        Of counted resources that a set leaves out, victims free nothing, so its places are short of none of them.
        """
        by_quota, lacking = self._short_by_quota(), self._lacking_places()
        asked = {"pods", *(name for pod in self.asks.pods for name in pod.demand.requests)}
        asked -= self.cluster.ignored_resources
        somewhere = self._short_somewhere()
        counted = [name for name in self.usage.tree.resources if name in asked and name not in lacking]
        counted.sort(key=lambda name: name not in somewhere)
        sets = (chosen for number in range(len(counted)) for chosen in combinations(counted, number))
        for names in (*islice(sets, MOST_GUESSES - 1), asked):
            short = self._short_of(lacking.union(names), by_quota)
            found = self._of_gang_short_of(short, by_quota)
            if found is not None:
                return found
        return None

    def _of_gang_short_of(self, short: _Short, by_quota: tuple[tuple[int, Quota], ...]) -> Reclaimed | None:
        """Try evictions for a gang that is short of no other counted resources."""
        missed: set[int] = set()
        for pool, every in self._pools_of_gang(short, missed):
            found = self._of_gang_without(pool, every, short)
            if found is not None:
                really = self._short_of(self._short_on(found.places), by_quota)
                if really == short or self._is_legal(pool.needed, really):
                    return found
                missed |= short.places - really.places
        return None

    def _pools_of_gang(self, short: _Short, missed: Collection[int]) -> Iterator[tuple[_Pool, _Pool | None]]:
        """Yield units that may go for a gang, then those of one node after the other, with all that may go after them.

        A gang gets its places where victims leave, and its places say what it is short of. So it may find places where
        it is short of no counted resource that gives it a right to evict, though on another node it would be.

        missed: counted resources of which the places found so far are not short, by place; the caller adds to it.
        """
        for pool in self._in_orders(self._pool(short, None)):
            yield pool, None
        if missed:
            every = self._pool(short, None)
            names = [self.usage.tree.resources[place] for place in missed]
            for row in islice(every.rows_in_order(self._rows_that_may_lack(names)), MOST_ORDERS):
                yield every.on(row), every

    def _of_gang_without(self, pool: _Pool, every: _Pool | None, short: _Short) -> Reclaimed | None:
        """Try evictions for a gang, of the units of a pool, then of every other unit that may go; undo them."""
        others = set(self.usage.tree.resources) - short.names
        before = len(self.away)

        def places() -> Mapping[str, str]:
            with self.away.holding_back(others, after=before):
                return self.places() or {}

        def fits() -> bool:
            return bool(places())

        done = self._take(pool, fits)
        if not done and every is not None:
            beyond = every.beyond(pool)
            done = self._take(beyond, fits)
            pool.follow(beyond)
        found = self._reclaimed(pool, fits, short, places) if done else None
        self._give_back([unit for unit in pool.gone if any(pod.uid in self.away for pod in unit.pods)])
        assert len(self.away) == before
        return found

    def _rows_that_may_lack(self, names: Iterable[str]) -> frozenset[int]:
        """Return the usable rows where members would be short of some resources if as many are there as ever can be."""
        rows, nodes = self.usage.usable_rows(), self.cluster.nodes
        most = {name: np.zeros(len(rows)) for name in names}
        for pods in self._alike_members():
            wanted = {**pods[0].demand.requests, "pods": 1}
            members = np.full(len(rows), float(len(pods)))
            for name, amount in wanted.items():
                if name not in self.cluster.ignored_resources:
                    members = np.minimum(members, nodes.allocatable(name)[rows] // max(amount, 1))
            for name, total in most.items():
                total += members * wanted.get(name, 0)
        lack = [self._free(name, rows) < total for name, total in most.items()]
        return frozenset(rows[np.any(lack, axis=0)].tolist())

    def _alike_members(self) -> Iterable[list[PodInfo]]:
        """Return the members in lists of those that ask for the same."""
        alike: dict[int, list[PodInfo]] = {}
        for pod in self.asks.pods:
            alike.setdefault(id(pod.demand), []).append(pod)
        return alike.values()

    def _short_somewhere(self) -> set[str]:
        """Return the resources of which some usable node has too little for one member."""
        rows = self.usage.usable_rows()
        wanted: dict[str, int] = {"pods": 1}
        for pod in self.asks.pods:
            for name, amount in pod.demand.requests.items():
                wanted[name] = max(wanted.get(name, 0), amount)
        names = (each for each in wanted.items() if each[0] not in self.cluster.ignored_resources)
        return {name for name, amount in names if bool((self._free(name, rows) < amount).any())}

    def _lacking_places(self) -> set[str]:
        """Return the resources of which alone usable nodes have too few places for all members that are alike."""
        rows = self.usage.usable_rows()
        lacking: set[str] = set()
        for pods in self._alike_members():
            for name, amount in {**pods[0].demand.requests, "pods": 1}.items():
                if name in self.cluster.ignored_resources:
                    continue
                free = np.maximum(self._free(name, rows), 0)
                if int((free // max(amount, 1)).sum()) < len(pods):
                    lacking.add(name)
        return lacking

    def _short_on(self, places: Mapping[str, str]) -> set[str]:
        """Return what is short on chosen nodes for the pods placed there."""
        there: dict[int, list[PodInfo]] = {}
        by_uid = {pod.uid: pod for pod in self.asks.pods}
        for uid, node_name in places.items():
            row, pod = self.cluster.nodes.rows.get(node_name), by_uid.get(uid)
            if row is not None and pod is not None:
                there.setdefault(row, []).append(pod)
        return {
            name
            for row, pods in there.items()
            for name, amount in _requested(pods).items()
            if self._free(name, np.array([row]), pods)[0] < amount
        }

    def _is_legal(self, units: Sequence[Unit], short: _Short) -> bool:
        """Return whether units may go for what is short, in their order."""
        rights = self._rights(short)
        done: list[Unit] = []
        for unit in units:
            if not short.is_held_by(unit):
                break
            if not rights.may_reclaim(unit) and not (rights.may_share(unit) and rights.fairer(unit, units)):
                break
            self.away.take(unit.pods)
            done.append(unit)
        self._give_back(done)
        return len(done) == len(units)

    # --- victims -----------------------------------------------------------------------------------------

    def _rights(self, short: _Short) -> Rights:
        return Rights(self.usage, self.guarantees, self.asks, short.places, self.rule, self.frame.now)

    def _pool(self, short: _Short, rows: frozenset[int] | None, *, quota_too: bool = False) -> _Pool:
        """Return the units that may go for what is short.

        rows: that they must be on; None: any. quota_too: those elsewhere, too, that use the quota that is short.
        """
        rights = self._rights(short)
        candidates = partial(self._candidates, rights, short, rows, quota_too=quota_too)
        return _Pool(self, rights, candidates({}), candidates)

    def _candidates(
        self,
        rights: Rights,
        short: _Short,
        rows: frozenset[int] | None,
        known: Collection[Unit],
        *,
        quota_too: bool,
    ) -> dict[Unit, _Candidate]:
        """Return the units that may go now, as the cluster stands, but for those that are known; see `_pool`."""
        found: dict[Unit, _Candidate] = {}
        kinds: dict[tuple[Parts, bool], _Kind] = {}
        kind: _Kind | None = None
        own, disruptions = self.own, self.budgets.disruptions
        beyond_quota = bool(short.names - {self.usage.tree.resources[place] for place, _ in short.by_quota})
        for queue in self.usage.queues() if rights.short else ():
            if not queue.members or not (
                rights.entitled(queue) is not None or (self.rule.fair and rights.has_smaller_share(queue))
            ):
                continue
            for unit in self.units.own(queue):
                if not unit.is_placed or (own and unit.gang in own) or (len(unit.parts) > 1 and unit in found):
                    continue
                if known and unit in known:
                    continue
                if kind is None or kind.parts is not unit.parts or kind.is_surplus is not unit.is_surplus:
                    kind = kinds.get((unit.parts, unit.is_surplus))
                    if kind is None:
                        kind = kinds[unit.parts, unit.is_surplus] = self._kind(unit, short, rights)
                if not kind.goes or not (kind.counts or short.is_asked_by(unit.pods)):
                    continue
                its_rows = self._rows_of(unit)
                if rows is None:
                    if not (beyond_quota or kind.uses_quota):
                        continue
                elif not (quota_too and kind.uses_quota) and rows.isdisjoint(its_rows):
                    continue
                reclaims = kind.reclaims if kind.reclaims is not None else rights.may_reclaim(unit)
                if (reclaims or self._may_share(unit, kind, rights)) and not self._is_spared(unit):
                    found[unit] = _Candidate(unit, kind, reclaims, disruptions(unit.pods), its_rows)
        self.tried = self.tried or bool(found)
        return found

    def _kind(self, unit: Unit, short: _Short, rights: Rights) -> _Kind:
        uses_quota = any(
            place == resource and is_below(queue, at)
            for place, at in short.by_quota
            for queue, amounts in unit.parts
            for resource, _ in amounts
        )
        reclaims = rights.reclaims_alike(unit) if self.only is not False else False
        shares = rights.shares_alike(unit) if self.only is not True and self.rule.fair else False
        return _Kind(
            unit.parts,
            unit.is_surplus,
            counts=short.counts_for(unit),
            uses_quota=uses_quota,
            goes=reclaims is not False or shares is not False,
            reclaims=reclaims,
            shares=shares,
            follows_gone=rights.is_guaranteed_in_common(unit),
        )

    def _may_share(self, unit: Unit, kind: _Kind, rights: Rights) -> bool:
        """Return whether a unit may go so that shares become fairer, whatever they are now, with its surplus."""
        return kind.may_share(unit, rights) and (
            unit.gang is None or all(map(rights.may_share_now, self.units.surplus_of(unit)))
        )

    def _is_spared(self, unit: Unit) -> bool:
        its_group_stays, spares = self.its_group_stays, self.rule.spares
        if unit.gang is None and its_group_stays is None and spares is None:
            return False
        pods = self.units.going_with(unit)
        if its_group_stays is not None and any(map(its_group_stays, pods)):
            return True
        if any(self.usage.quota_of(pod.template) is None for pod in pods):
            return True
        return spares is not None and any(spares(self.frame, pod) for pod in pods)

    def _rows_of(self, unit: Unit) -> frozenset[int]:
        node_of = self.frame.cluster.node_of
        if len(unit.pods) > 1:
            rows = self.cluster.nodes.rows
            return frozenset(rows.get(node_of(pod.uid) or "", -1) for pod in unit.pods)
        name = node_of(unit.pods[0].uid) or ""
        found = self.rows_by_node.get(name)
        if found is None:
            found = self.rows_by_node[name] = frozenset((self.cluster.nodes.rows.get(name, -1),))
        return found

    def _note_bound(self) -> bool:
        """Return whether no more pods are taken away, and note it: what would be without further ones is not known."""
        self.is_cut = self.is_cut or len(self.away) >= MOST_DISPLACED
        return len(self.away) >= MOST_DISPLACED

    def _in_orders(self, pool: _Pool) -> Iterator[_Pool]:
        """Yield units that may go, then the same with another one first that could not go after those before it.

        Who takes them gives back what has gone before it asks for the next.
        """
        firsts = list[Unit]()
        yield pool
        for number in range(MOST_ORDERS - 1):
            firsts += [unit for unit in pool.passed_over if unit not in firsts]
            if number >= len(firsts):
                return
            pool = pool.beginning_with(firsts[number])
            yield pool

    def _take(self, pool: _Pool, fits: Callable[[], bool]) -> bool:
        """Take units away until the request fits, and return whether it does; looks after 1, 2, 4, 8 … of them."""
        next_look = 1
        while not self._note_bound():
            taken = pool.take()
            if not taken:
                if pool.look_again():
                    continue
                break
            for unit in taken:
                self.away.take(unit.pods)
            if len(pool.gone) >= next_look:
                if fits():
                    return True
                pool.too_few = len(pool.gone)
                next_look = 2 * len(pool.gone)
        return bool(pool.gone) and fits()

    def _reclaimed(
        self, pool: _Pool, fits: Callable[[], bool], short: _Short, places: Callable[[], Mapping[str, str]]
    ) -> Reclaimed | None:
        """Put back what may stay; return the rest as victims. None: they may not go without those that stay."""
        pool.needed = self._minimal(pool, fits)
        if pool.takes_places or (pool.depends_on_order and len(pool.needed) < len(pool.gone)):
            self._give_back(pool.needed)
            if not self._is_legal(pool.needed, short):
                self.mixed = True
                return None
            for unit in pool.needed:
                self.away.take(unit.pods)
        fits()  # for where it is then
        victims = tuple(pod for unit in pool.needed for pod in unit.pods)
        return Reclaimed(victims, places(), short=tuple(sorted(short.names)), shares=pool.shares)

    def _minimal(self, pool: _Pool, fits: Callable[[], bool]) -> list[Unit]:
        """Put back what may stay, the last ones first, in halves while that works; return what must go.

        What a gang needs comes back before its surplus does, or all of it goes.
        """
        needed: set[Unit] = set()
        left = list(reversed(pool.gone))
        for core in [unit for unit in left if self.units.surplus_of(unit)]:
            self.away.put_back(core.pods)
            if not fits():
                self.away.take(core.pods)
                needed |= {core, *self.units.surplus_of(core)}
            left.remove(core)
        first = set(pool.gone[: pool.too_few])
        last = [unit for unit in left if unit not in needed and unit not in first]  # they do not fit back all at once
        half = len(last) // 2
        chunks = [[unit for unit in left if unit not in needed and unit in first], last[half:], last[:half]]
        # what does not fit back, nor will beside more that did: of alike, one is tried, and then all others together
        refused: dict[Hashable, list[Unit]] = {}
        while chunks:
            chunk = list[Unit]()
            for unit in chunks.pop():
                alike = refused.get(self._alike(unit)) if refused else None
                (chunk if alike is None else alike).append(unit)
            if self._put_back(chunk, fits):
                continue
            if len(chunk) == 1:
                refused[self._alike(chunk[0])] = []
            else:
                half = len(chunk) // 2
                chunks += [chunk[half:], chunk[:half]]
        for others in refused.values():
            self._put_back(others, fits)
        return [unit for unit in pool.gone if any(pod.uid in self.away for pod in unit.pods)]

    def _put_back(self, units: Sequence[Unit], fits: Callable[[], bool]) -> bool:
        """Put units back if the request fits beside all of them; return whether they are back."""
        for unit in units:
            self.away.put_back(unit.pods)
        if not units or fits():
            return True
        for unit in units:
            self.away.take(unit.pods)
        return False

    def _alike(self, unit: Unit) -> Hashable:
        """Return what units that have gone have in common whose return would make the same difference.

        Pods of a template on one node, or on nodes that do not differ, differ only in what they say of themselves, in
        their state, in what metrics say of them, and in the claims, devices and volumes that are their own.
        """
        pod = unit.pods[0]
        is_told_apart = self.cluster.counters.tell_pods_apart or bool(self.frame.signals.readings)
        if len(unit.pods) > 1 or is_told_apart or self._has_own(pod):
            return unit.uid
        return pod.template, id(pod.demand), self._node_alike(self.away.node_of(pod.uid))

    def _has_own(self, pod: PodInfo) -> bool:
        """Return whether a pod may hold something on its node that no other pod of its template holds."""
        claims, devices = self.cluster.resource_claims, self.cluster.devices.tables
        if pod.volumes or pod.template.spec.resource_claims or claims.for_extended_resources(pod.uid) is not None:
            return True
        return any(name.removesuffix(SHARE_SUFFIX) in devices for name in pod.demand.requests) if devices else False

    def _node_alike(self, name: str) -> Hashable:
        """Return what tells a node apart: its labels, taints and conditions, and what is free of what is asked for.

        If pods that ask exclude each other or others, or need them, each node is another one.
        """
        nodes = self.cluster.nodes
        row = nodes.rows.get(name)
        if row is None or self.sees_pods:
            return name
        if name not in self.shapes:
            info = nodes.infos[row]
            labels = frozenset(each for each in info.labels.items() if each[0] != HOSTNAME_LABEL)
            taints = frozenset((each.key, each.value, each.effect) for each in info.taints)
            state = info.node.spec.unschedulable, frozenset(info.conditions.items())
            self.shapes[name] = labels, taints, state
        free = [nodes.allocatable(each).item(row) - nodes.requested(each).item(row) for each in self.wanted]
        pods = nodes.allocatable("pods").item(row) - nodes.pod_count.item(row)
        return self.shapes[name], pods, tuple(free)

    # --- the cluster -------------------------------------------------------------------------------------

    def _give_back(self, units: Iterable[Unit]) -> None:
        for unit in reversed(list(units)):
            self.away.put_back(unit.pods)


def _requested(pods: Iterable[PodInfo]) -> Mapping[str, int]:
    """Return what pods request of a node together, with `pods`."""
    total = Counter[str]()
    for pod in pods:
        total.update({**pod.demand.requests, "pods": 1})
    return total


class _Kind(msgspec.Struct, frozen=True, eq=False):
    """What is the same for all units that count for the same, as the cluster is when they are looked at."""

    parts: Parts
    is_surplus: bool
    counts: bool
    """Whether they hold counted resources that are short."""
    uses_quota: bool
    """Whether they use quota that is short."""
    goes: bool
    """Whether any of them may go."""
    reclaims: bool | None
    """Whether they may go for a guarantee; None: it depends on the unit."""
    shares: bool | None
    """Whether they may go so that shares become fairer, if their priority and age allow it; None: as before."""
    follows_gone: bool
    """Whether it may depend on who went before if one may go so that shares become fairer."""

    def may_share(self, unit: Unit, rights: Rights) -> bool:
        """Return whether one of them may go so that shares become fairer, whatever they are now."""
        if self.shares is None:
            return rights.may_share(unit)
        return self.shares and rights.may_share_now(unit)


class _Candidate(msgspec.Struct, frozen=True, eq=False):
    """A unit that may go."""

    unit: Unit
    kind: _Kind
    reclaims: bool
    """Whether it goes for a guarantee; else so that shares become fairer."""
    disruptions: Disruptions
    rows: frozenset[int]


_Standing = tuple[bool, bool, tuple[float, ...]]
"""What decides first who goes: whether a budget forbids it, whether the queue loses a guarantee, and its shares."""
_Place = tuple[int, bool, float, str, _Candidate]
"""What decides then, which never changes."""


class _Line:
    """Candidates whose standing is always the same, the first one first."""

    __slots__ = ("places", "taken")

    def __init__(self, places: list[_Place]) -> None:
        self.places, self.taken = sorted(places), 0

    def standing_at(self, standing: _Standing) -> Iterator[tuple[_Standing, _Place]]:
        """Yield all of them, with their standing."""
        return ((standing, place) for place in self.places)

    def first(self) -> _Place | None:
        """Return the first that has neither gone nor been dropped."""
        return self.places[self.taken] if self.taken < len(self.places) else None


class _Pool:
    """Units that may go, the first one first; each that goes changes the shares of its queues.

    Units that count for the same change alike, so they stand in one line, and only the first of each line is compared.
    """

    def __init__(
        self,
        attempt: _Attempt,
        rights: Rights,
        candidates: dict[Unit, _Candidate],
        further: Callable[[Collection[Unit]], dict[Unit, _Candidate]],
    ) -> None:
        """Take nothing yet.

        Args:
            attempt: whose pods go.
            rights: of the unit that asks.
            candidates: that may go now.
            further: returns those that may go once some have gone, but for known ones.
        """
        self._attempt, self._rights, self._candidates, self._further = attempt, rights, candidates, further
        self._at_first = candidates
        """Those that may be evicted before any other is. A search that starts over starts with these."""
        self._looked_at = 0
        """How many had gone when it was looked for further ones."""
        self._is_extended = False
        self._by_row: dict[int, dict[Unit, _Candidate]] | None = None
        self._disrupted = Disrupted()
        self._alike: dict[tuple[_Kind, Disruptions], _Standing] = {}
        self._falls: dict[_Kind, bool] = {}
        """What holds for all of a kind until the next one goes: these two."""
        self._heap = self._lines(candidates)
        heapq.heapify(self._heap)
        self._went: set[Unit] = set()
        self._first: Unit | None = None
        """Goes before all others if it may."""
        self._passed_over: dict[_Kind, Unit] = {}
        self.gone: list[Unit] = []
        self.too_few = 0
        """So many of the first of them are known not to be enough."""
        self.needed: list[Unit] = []
        """Those of them that must go."""

    @property
    def depends_on_order(self) -> bool:
        """Return whether some may go only because others do.

        So it is for a guarantee with others for shares, for those that are candidates later, and for shares beside
        those of a queue in common: its share falls as they go.
        """
        reasons = {self._candidates[unit].reclaims for unit in self.gone if unit in self._candidates}
        if self._is_extended or len(reasons) > 1:
            return True
        return reasons == {False} and any(map(self._rights.shares_a_queue, self.gone))

    @property
    def passed_over(self) -> Collection[Unit]:
        """Return those that could not go so that shares become fairer, as others had gone; one of each kind."""
        return self._passed_over.values()

    @property
    def takes_places(self) -> bool:
        """Return whether some that must go may be guaranteed in a queue in common: who is then, all together say."""
        found = (self._candidates.get(unit) for unit in self.needed)
        return any(each is not None and not each.reclaims and each.kind.follows_gone for each in found)

    @property
    def shares(self) -> bool:
        """Return whether some of those that must go do so that shares become fairer."""
        found = (self._candidates.get(unit) for unit in self.needed)
        return any(each is not None and not each.reclaims for each in found)

    def look_again(self) -> bool:
        """Return whether further units may go because others of a queue in common have gone.

        The unit that asks may be guaranteed there only without these.
        """
        since, self._looked_at = self.gone[self._looked_at :], len(self.gone)
        if not any(map(self._rights.shares_a_queue, since)):
            return False
        found = self._further(self._candidates)
        self._candidates = {**self._candidates, **found}
        for line in self._lines(found):
            heapq.heappush(self._heap, line)
        self._is_extended = self._is_extended or bool(found)
        return bool(found)

    def rows_in_order(self, rows: frozenset[int]) -> Iterator[int]:
        """Yield the rows with candidates, that of the first one first."""
        seen: set[int] = set()
        for place in self._in_order():
            for row in sorted(place[-1].rows & rows):
                if row not in seen:
                    seen.add(row)
                    yield row

    def _in_order(self) -> Iterator[_Place]:
        """Yield all candidates in order; nearly always the first one is enough, and one order for all takes long."""
        if self._heap:
            yield self._heap[0][1]
            lines = (line.standing_at(standing) for standing, _, line in self._heap)
            yield from (place for _, place in heapq.merge(*lines))

    def on(self, row: int) -> _Pool:
        """Return those with pods on a row."""
        if self._by_row is None:
            self._by_row = {}
            for unit, each in self._at_first.items():
                for there in each.rows:
                    self._by_row.setdefault(there, {})[unit] = each
        return self._some(lambda each: row in each.rows, self._by_row.get(row, {}))

    def beginning_with(self, unit: Unit) -> _Pool:
        """Return all of them, of which this one goes first if it may."""
        pool = self._some(lambda each: True)
        pool._first = unit
        return pool

    def beyond(self, other: _Pool) -> _Pool:
        """Return those that did not go as part of another pool."""
        gone = set(other.gone)
        pool = self._some(lambda each: each.unit not in gone)
        pool._disrupted = other._disrupted.copy()
        return pool

    def follow(self, other: _Pool) -> None:
        """Count what went as part of another pool as gone after these."""
        self.too_few = len(self.gone) + other.too_few
        self.gone += other.gone
        self._candidates = {**other._candidates, **self._candidates}
        self._is_extended = self._is_extended or other._is_extended

    def _some(self, chosen: Callable[[_Candidate], bool], some: dict[Unit, _Candidate] | None = None) -> _Pool:
        """Return those that are chosen; some: which these are now, if it is known."""

        def of(candidates: Mapping[Unit, _Candidate]) -> dict[Unit, _Candidate]:
            return {unit: each for unit, each in candidates.items() if chosen(each)}

        some = of(self._at_first) if some is None else some
        return _Pool(self._attempt, self._rights, some, lambda known: of(self._further(known)))

    def _lines(self, candidates: Mapping[Unit, _Candidate]) -> list[tuple[_Standing, _Place, _Line]]:
        """Return candidates in lines, each with the standing of its first one."""
        places: dict[tuple[Disruptions, _Kind, Unit | None], list[_Place]] = {}
        for unit, each in candidates.items():
            # whether one of these is dropped may depend on when it is considered, so each stands alone
            alone = unit if not each.reclaims and each.kind.follows_gone else None
            is_core = unit.gang is not None and not unit.is_surplus
            place = unit.priority, is_core, -unit.started, unit.pods[0].uid, each
            key = each.disruptions, each.kind, alone
            if key in places:
                places[key].append(place)
            else:
                places[key] = [place]
        lines = map(_Line, places.values())
        return [(self._standing(line.places[0][-1]), line.places[0], line) for line in lines]

    def take(self) -> list[Unit]:
        """Take the next one, with what must go before it; nothing: there is none."""
        heap, went = self._heap, self._went
        if self._first is not None:
            return self._take_first(self._first)
        while heap:
            before, place, line = heap[0]
            candidate = place[-1]
            unit = candidate.unit
            if unit in went:
                self._next(line)
                continue
            surplus = self._surplus_of(unit)
            first = self._first_of(surplus)
            if not candidate.reclaims and not self._fairer(candidate, surplus if first is None else []):
                self._next(line)  # the other share only falls
                if self.gone:
                    self._passed_over.setdefault(candidate.kind, unit)
                continue
            now = self._standing(candidate)
            if now != before:
                heapq.heapreplace(heap, (now, place, line))
                continue
            if first is None:
                self._next(line)
                # surplus that may not go alone goes only because its gang does
                self._is_extended = self._is_extended or any(each in self._candidates for each in surplus)
                return self._go([*surplus, unit])
            return self._go([first])
        return []

    def _take_first(self, unit: Unit) -> list[Unit]:
        """Take the one that is to go before all others; the next one if it may not."""
        self._first = None
        candidate, surplus = self._candidates.get(unit), self._surplus_of(unit)
        if candidate is None or not self._fairer(candidate, surplus):
            return self.take()
        self._is_extended = True
        return self._go([*surplus, unit])

    def _surplus_of(self, unit: Unit) -> list[Unit]:
        """Return what goes before a unit, or with it."""
        attempt = self._attempt
        return [
            each
            for each in attempt.units.surplus_of(unit)
            if each not in self._went and any(attempt.cluster.node_of(pod.uid) for pod in each.pods)
        ]

    def _first_of(self, surplus: Sequence[Unit]) -> Unit | None:
        """Return the surplus member that goes before its gang does; None: none may go without the gang."""
        mine = [self._candidates[unit] for unit in surplus if unit in self._candidates]
        mine.sort(key=self._key)
        return next((each.unit for each in mine if each.reclaims or self._fairer(each, [])), None)

    def _fairer(self, candidate: _Candidate, beside: Sequence[Unit]) -> bool:
        unit, kind, rights = candidate.unit, candidate.kind, self._rights
        if beside:
            return rights.fairer(unit, self.gone, beside=beside)
        falls = self._falls.get(kind)
        if falls is None:
            falls = self._falls[kind] = rights.shares_fall(unit)
        return falls and rights.takes_no_guarantee(unit, self.gone)

    def _go(self, units: list[Unit]) -> list[Unit]:
        self._alike.clear()
        self._falls.clear()
        self._went.update(units)
        for unit in units:
            self._disrupted.take(self._attempt.budgets.disruptions(unit.pods))
        self.gone += units
        return units

    def _next(self, line: _Line) -> None:
        """Let the first one of the first line go, or drop it."""
        line.taken += 1
        first = line.first()
        if first is None:
            heapq.heappop(self._heap)
        else:
            heapq.heapreplace(self._heap, (self._heap[0][0], first, line))

    def _key(self, candidate: _Candidate) -> tuple[_Standing, int, bool, float]:
        unit = candidate.unit
        return (
            self._standing(candidate),
            unit.priority,
            unit.gang is not None and not unit.is_surplus,
            -unit.started,
        )

    def _standing(self, candidate: _Candidate) -> _Standing:
        key = candidate.kind, candidate.disruptions
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = self._stands(candidate)
        return found

    def _stands(self, candidate: _Candidate) -> _Standing:
        unit, usage, short = candidate.unit, self._attempt.usage, self._rights.short
        theirs = usage.branch(self._rights.asks.queue, unit.queue)[1]
        sinks = any(
            each.over(resource) < amount
            for each in theirs
            for resource, amount in within(unit.parts, each)
            if resource in short
        )
        violates = self._disrupted.violates(candidate.disruptions)
        return violates, sinks, tuple(-usage.share_of(each, short) for each in theirs)


def next_victims(cluster: Cluster, rules: QuotaRules, *, now: float, most: int) -> list[Unit]:
    """Return what would be evicted first if other queues asked for what is guaranteed to them; changes nothing.

    Args:
        cluster: with its pods.
        rules: the queues.
        now: Unix seconds.
        most: how many at most.
    """
    usage = cluster.track_usage(rules.tree)
    if not rules.reclaims:
        return []
    units, budgets, disrupted = QueueUnits(cluster, usage, rules, now=now), Budgets(cluster), Disrupted()
    guarantees = Guarantees(usage, units.of)
    heap: list[tuple[tuple[object, ...], str, Unit]] = []
    counted = range(len(rules.tree.resources))

    def key(unit: Unit) -> tuple[object, ...]:
        path = list(unit.queue.path())[::-1]
        violates = disrupted.violates(budgets.disruptions(unit.pods))
        shares = tuple(-usage.share_of(each, counted) for each in path)
        return violates, shares, unit.priority, unit.gang is not None and not unit.is_surplus, -unit.started

    def goes(unit: Unit) -> bool:
        is_borrowed = all(guarantees.rank(unit, each) is None for each, _ in unit.parts)  # so queues beside may take it
        is_outside = any(usage.quota_of(pod.template) is None for pod in units.going_with(unit))
        return unit.is_placed and is_borrowed and not is_outside and not units.are_spared(unit, rules.reclaims)

    for queue in usage.queues():
        for unit in units.own(queue) if queue.members else ():
            if unit.queue is queue and goes(unit):
                heap.append((key(unit), unit.uid, unit))
    heapq.heapify(heap)
    found: list[Unit] = []
    with cluster.dry_run():
        while heap and len(found) < most:
            before, uid, unit = heapq.heappop(heap)
            if unit in found:
                continue  # it went before the others of its gang
            if (now_ := key(unit)) != before:
                heapq.heappush(heap, (now_, uid, unit))
                continue
            surplus = [other for other in units.surplus_of(unit) if other not in found]
            if surplus:  # as in `_Pool.take`
                heapq.heappush(heap, (before, uid, unit))
                unit = min(surplus, key=key)
            found.append(unit)
            disrupted.take(budgets.disruptions(unit.pods))
            for pod in unit.pods:
                cluster.displace(pod.uid)
    return found
