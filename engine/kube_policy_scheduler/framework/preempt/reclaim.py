"""Reclaim: which pods of queues that borrow to evict, so that a pod or gang gets what its own queue is guaranteed.

Decides only; evicts nothing. Victims are whole gangs, else single pods. They are taken away one after the other on the
real columns, those of the queue that borrows most first, until the pod or the whole gang fits; then as many as possible
come back. So all victims together are enough, and without any one of them they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaUsage
from kube_policy_scheduler.cluster.search_work import search_work
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.freed_devices import FreedDevices
from kube_policy_scheduler.framework.preempt.victims import Budgets, in_whole_groups, started
from kube_policy_scheduler.framework.quota import QuotaRules, ReclaimRule
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims

MOST_DISPLACED = 4096
"""Pods that one attempt takes away at most: about 0.2 s."""
RETRY_SECONDS = 5.0
"""A pod for which nobody could be evicted is not tried again for so long."""


class NotReclaimed(Enum):
    """Why `reclaim` evicts nobody, as people read it."""

    WAITS = "waits until evicted pods are gone"
    PATIENCE = "not before this pod has waited for"
    """Followed by how long."""
    NO_VICTIMS = "no pods that could be evicted would make room"


class Tier(IntEnum):
    """How much an eviction takes from the victim's queue."""

    ABOVE = 0
    """The queue stays at or above its guarantee; with `reclaim fair`, its share stays the larger one."""
    ACROSS = 1
    """The queue is above its guarantee before, and below it afterwards: its pods are that coarse."""


class Unit(msgspec.Struct, frozen=True, eq=False):
    """Pods that are evicted together: a gang, or one pod."""

    pods: tuple[PodInfo, ...]
    queue: Quota
    amounts: Amounts
    priority: int
    """The highest."""
    started: float
    """When the last of them started, Unix seconds."""
    violates: bool
    """Whether a PodDisruptionBudget does not allow the eviction."""

    @property
    def key(self) -> tuple[bool, int, float, str]:
        """Return what orders the units of a queue: the first one is evicted first."""
        return self.violates, self.priority, -self.started, self.pods[0].uid


class Reclaimed(msgspec.Struct, frozen=True):
    """What came of a try."""

    victims: tuple[PodInfo, ...] = ()
    places: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By uid: the nodes of the pod, or of the members of its gang, once the victims are gone."""
    why: NotReclaimed | None = None
    """Why nobody is evicted; None if somebody is, or nothing is to be said."""
    after_seconds: float = 0.0
    """How long a pod waits first."""
    look_later: bool = False
    """Whether time alone may change the answer."""

    @property
    def waits(self) -> bool:
        """Return whether pods that are terminating will make the room."""
        return self.why is NotReclaimed.WAITS

    @property
    def message(self) -> str:
        """Return why nobody is evicted, for people; "" if somebody is, or nothing is to be said."""
        if self.why is None:
            return ""
        seconds = f" {self.after_seconds:g}s" if self.why is NotReclaimed.PATIENCE else ""
        return f"reclaim: {self.why.value}{seconds}."


NOTHING_RECLAIMED = Reclaimed()


def reclaim(
    frame: Frame,
    rules: QuotaRules,
    request: Amounts,
    places: Callable[[], Mapping[str, str] | None],
    *,
    own: frozenset[Hashable] = frozenset(),
) -> Reclaimed:
    """Return whom to evict so that a request of a pod's queue fits.

    Args:
        frame: of the pod that asks.
        rules: the queues.
        request: what the pod, or its whole gang, asks for.
        places: returns nodes by uid for the pod, or for what its gang needs, as the cluster stands, which it leaves
            unchanged; None: it does not fit.
        own: the gangs of the pod, which are no victims.
    """
    rule = rules.reclaim_of(frame)
    usage = frame.cluster.usage_of(rules.tree)
    queue = usage.quota_of(frame.template)
    if rule is None or queue is None or not request or frame.template.spec.preemption_policy == "Never":
        return Reclaimed()
    if not may_gain(usage, queue, request, rule):
        return Reclaimed()
    if frame.now < frame.queued + rule.after_seconds:
        return Reclaimed(why=NotReclaimed.PATIENCE, after_seconds=rule.after_seconds, look_later=True)
    attempt = _Attempt(frame, rules, rule, usage, queue, request, places, own)
    with frame.cluster.ledger.silent(), search_work(frame.cluster.store).at_once():
        try:
            return attempt.run()
        finally:
            attempt.put_back()


def may_gain(usage: QuotaUsage, queue: Quota, request: Amounts, rule: ReclaimRule) -> bool:
    """Return whether some queue could have to give something back to this one, by guarantees alone."""
    return rule.fair or any(
        all(each.used[r] + amount <= each.minimum[r] for r, amount in request) for each in queue.path()
    )


@dataclass(slots=True)
class _Attempt:
    """Evictions that are tried out, and undone at the end."""

    frame: Frame
    rules: QuotaRules
    rule: ReclaimRule
    usage: QuotaUsage
    queue: Quota
    request: Amounts
    places: Callable[[], Mapping[str, str] | None]
    own: frozenset[Hashable]
    displaced: dict[str, tuple[PodInfo, str]] = field(default_factory=dict)
    """By uid: pods with their nodes, in the order in which they were taken away."""
    devices: FreedDevices = field(init=False)

    def __post_init__(self) -> None:
        self.devices = FreedDevices(self.frame.cluster)

    @property
    def cluster(self) -> Cluster:
        """Return the cluster."""
        return self.frame.cluster

    def fits(self) -> bool:
        """Return whether the request fits as the cluster stands."""
        return self.places() is not None

    def run(self) -> Reclaimed:
        """Try it out."""
        for pod in [pod for pod in self.cluster.pods.values() if pod.terminating]:
            self._displace(pod)
        leaving = has_claims(self.frame.template, self.cluster) and self.devices.free_abandoned()
        if (self.displaced or leaving) and self.fits():
            return Reclaimed(why=NotReclaimed.WAITS)
        usage, queue = self.usage, self.queue
        borrowers = [other for other in _others(usage, queue) if usage.borrows(other, queue, self.request)]
        if not borrowers:  # and evictions make none: what is taken away is borrowed no more
            return Reclaimed(look_later=True)
        units = units_of(self.frame, self.rules, self.rule, usage=usage, own=self.own, queue=queue, among=borrowers)
        gone: list[Unit] = []
        for tier in Tier:
            if self._take(units, gone, tier):
                kept = self._minimal(gone)
                return Reclaimed(tuple(pod for unit in kept for pod in unit.pods), self.places() or {})
        return Reclaimed(why=NotReclaimed.NO_VICTIMS if gone else None, look_later=True)

    # --- victims -----------------------------------------------------------------------------------------

    def _take(self, units: dict[Quota, list[Unit]], gone: list[Unit], tier: Tier) -> bool:
        """Take units away until the request fits, and return whether it does; looks after 1, 2, 4, 8 … of them."""
        next_look = len(gone) + 1
        while len(self.displaced) < MOST_DISPLACED:
            unit = self._next(units, tier)
            if unit is None:
                break
            units[unit.queue].remove(unit)
            for pod in unit.pods:
                self._displace(pod)
            gone.append(unit)
            if len(gone) >= next_look:
                if self.fits():
                    return True
                next_look = 2 * len(gone)
        return bool(gone) and self.fits()

    def _next(self, units: dict[Quota, list[Unit]], tier: Tier) -> Unit | None:
        """Return what is evicted next: the first that may be, of the queue with the largest share that has one."""
        best: tuple[tuple[bool, tuple[float, ...]], Unit] | None = None
        for queue, there in units.items():
            answers: dict[tuple[Amounts, int], bool] = {}  # all that tells the units of one queue apart here
            unit = None
            for each in there:
                alike = each.amounts, each.priority
                if alike not in answers:
                    answers[alike] = self._may_evict(each, tier)
                if answers[alike]:
                    unit = each
                    break
            if unit is None:
                continue
            _, theirs = self.usage.branch(self.queue, queue)
            rank = (not unit.violates, tuple(self.usage.share(each) for each in theirs))
            if best is None or rank > best[0] or (rank == best[0] and queue.name < best[1].queue.name):
                best = rank, unit
        return best[1] if best is not None else None

    def _may_evict(self, unit: Unit, tier: Tier) -> bool:
        usage, queue = self.usage, self.queue
        mine, theirs = usage.branch(queue, unit.queue)
        wanted = tuple((r, amount) for r, amount in unit.amounts if any(r == other for other, _ in self.request))
        if not wanted or not usage.borrows(unit.queue, queue, wanted):
            return False
        if usage.is_entitled(queue, self.request, unit.queue):
            if tier is Tier.ACROSS:
                return True
            return all(each.over(r) >= amount for each in theirs for r, amount in wanted if each.over(r) > 0)
        if not self.rule.fair or not mine or not theirs or unit.priority > self.frame.pod.priority:
            return False  # one of higher priority would come back by preemption, and so on for ever
        first, other = mine[0], theirs[0]
        share = usage.share(first, self.request)
        if tier is Tier.ACROSS:
            return share < usage.share(other)
        return share <= usage.share(other, unit.amounts, step=-1)

    def _minimal(self, gone: Sequence[Unit]) -> list[Unit]:
        """Put back what may stay, the last ones first, in halves while that works; return what must go."""
        needed: list[Unit] = []
        chunks = [list(reversed(gone))]
        while chunks:
            chunk = chunks.pop()
            for unit in chunk:
                self._place(unit)
            if self.fits():
                continue
            for unit in chunk:
                for pod in unit.pods:
                    self._displace(pod)
            if len(chunk) == 1:
                needed.append(chunk[0])
            else:
                half = len(chunk) // 2
                chunks += [chunk[half:], chunk[:half]]
        return needed[::-1]

    # --- the cluster -------------------------------------------------------------------------------------

    def _displace(self, pod: PodInfo) -> None:
        node_name = self.cluster.node_of(pod.uid)
        if node_name is not None:
            self.displaced[pod.uid] = pod, node_name
            self.cluster.displace(pod.uid)
            self.devices.leave(pod)

    def _place(self, unit: Unit) -> None:
        for pod in unit.pods:
            placed = self.displaced.pop(pod.uid, None)
            if placed is not None:
                self.cluster.place(*placed)
                self.devices.come_back(pod)

    def put_back(self) -> None:
        """Undo all of it."""
        for pod, node_name in reversed(self.displaced.values()):
            self.cluster.place(pod, node_name)
        self.displaced.clear()
        self.devices.put_back()


def units_of(
    frame: Frame,
    rules: QuotaRules,
    rule: ReclaimRule | None,
    *,
    usage: QuotaUsage,
    own: frozenset[Hashable] = frozenset(),
    queue: Quota | None = None,
    among: Collection[Quota] | None = None,
) -> dict[Quota, list[Unit]]:
    """Return by queue what may be evicted, the first one first.

    Args:
        frame: of the pod that asks, for the rule.
        rules: the queues.
        rule: which pods it spares; None: none.
        usage: of the queues.
        own: gangs that stay.
        queue: that asks; its own pods stay. None: no queue asks yet.
        among: queues whose pods may be evicted; None: all others.
    """
    cluster = frame.cluster
    asked = _others(usage, queue) if among is None else among
    is_in_whole_group, budgets = in_whole_groups(cluster), Budgets(cluster)
    gangs: dict[Hashable, list[PodInfo]] = {}
    found: dict[Quota, list[Unit]] = {}
    together, spared, has_groups = _Together(), set(own), False
    spares = rule.spares if rule is not None else None
    for other in asked:
        singles: list[Unit] = []
        for pod in other.members.values():
            groups = rules.groups_of(Frame(pod, cluster, frame.now))
            if not groups:
                is_spared = is_in_whole_group is not None and is_in_whole_group(pod)
                if not is_spared and not (spares is not None and spares(frame, pod)):
                    singles.append(_unit((pod,), other, usage, budgets, frame.now))
                continue
            has_groups = True
            together.join(groups)
            gangs.setdefault(groups[0], []).append(pod)
            if spares is not None and spares(frame, pod):
                spared.add(groups[0])
        if singles:
            found[other] = singles
    # a gang with members in the queue that asks, in one that keeps its pods, or in none, stays as a whole
    evictable = frozenset(asked)
    for pod in cluster.pods.values() if has_groups else ():
        if usage.quota_of(pod.template) not in evictable:
            groups = rules.groups_of(Frame(pod, cluster, frame.now))
            together.join(groups)
            spared.update(groups[:1])
    spared = {together.first(key) for key in spared}
    whole: dict[Hashable, list[PodInfo]] = {}
    for key, pods in gangs.items():
        whole.setdefault(together.first(key), []).extend(pods)
    for key, pods in whole.items():
        queues = {usage.quota_of(pod.template) for pod in pods}
        only = queues.pop()
        if key not in spared and not queues and only is not None:
            found.setdefault(only, []).append(_unit(pods, only, usage, budgets, frame.now))
    for units in found.values():
        units.sort(key=lambda unit: unit.key)
    return found


def _others(usage: QuotaUsage, queue: Quota | None) -> list[Quota]:
    """Return the other queues that have pods."""
    return [other for other in usage.queues() if other.members and other is not queue]


class _Together:
    """Gangs that share a pod: they are evicted together (disjoint sets)."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def join(self, groups: Sequence[Hashable]) -> None:
        """Note that a pod is in some gangs."""
        for other in groups[1:]:
            first, second = self.first(groups[0]), self.first(other)
            if first != second:
                self._above[second] = first

    def first(self, group: Hashable) -> Hashable:
        """Return the gang that stands for all that are evicted with this one."""
        path = []
        while (above := self._above.get(group)) is not None:
            path.append(group)
            group = above
        self._above.update(dict.fromkeys(path, group))
        return group


def _unit(pods: Sequence[PodInfo], queue: Quota, usage: QuotaUsage, budgets: Budgets, now: float) -> Unit:
    violating = budgets.covers(pods) and bool(budgets.split(pods)[0])
    if len(pods) == 1:
        pod = pods[0]
        return Unit(tuple(pods), queue, usage.amounts(pod), pod.priority, started(pod, now), violating)
    return Unit(
        tuple(sorted(pods, key=lambda pod: pod.uid)),
        queue,
        request_of(usage, pods),
        max(pod.priority for pod in pods),
        max(started(pod, now) for pod in pods),
        violating,
    )


def next_victims(cluster: Cluster, rules: QuotaRules, *, now: float, most: int) -> list[Unit]:
    """Return what would be evicted first if other queues asked for what is guaranteed to them; changes nothing.

    Args:
        cluster: with its pods.
        rules: the queues.
        now: Unix seconds.
        most: how many at most.
    """
    usage, found = cluster.usage_of(rules.tree), list[Unit]()
    anyone = next(iter(cluster.pods.values()), None)
    if anyone is None or not rules.reclaims:
        return []
    rule = rules.reclaims[0]
    units = units_of(Frame(anyone, cluster, now), rules, rule, usage=usage)
    removed: list[tuple[PodInfo, str]] = []
    with cluster.ledger.silent():
        try:
            while len(found) < most:
                borrowing = [
                    (tuple(usage.share(each) for each in reversed(list(queue.path()))), there[0])
                    for queue, there in units.items()
                    if there and any(queue.over(r) > 0 for r, _ in there[0].amounts)
                ]
                if not borrowing:
                    break
                borrowing.sort(key=lambda each: each[1].queue.name)
                _, unit = max(borrowing, key=lambda each: (not each[1].violates, each[0]))
                units[unit.queue].remove(unit)
                found.append(unit)
                for pod in unit.pods:
                    node_name = cluster.node_of(pod.uid)
                    if node_name is not None:
                        removed.append((pod, node_name))
                        cluster.displace(pod.uid)
        finally:
            for pod, node_name in reversed(removed):
                cluster.place(pod, node_name)
    return found


def request_of(usage: QuotaUsage, pods: Iterable[PodInfo]) -> Amounts:
    """Return what some pods ask for together."""
    return usage.request(pods)
