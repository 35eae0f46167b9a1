"""The queues as metrics and the status page show them: all that are declared, and of those by a key the largest.

The value of a label names the queue, so a tenant can create as many queues as pods. Namespaces take turns: first comes
the largest queue of each, then the second largest of each, and so on. So the pods of one namespace hide no queue of
another. The queues that are left out are shown as one for each declaration.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import Quota, QuotaState, QuotaUsage

At: TypeAlias = tuple[int, str | None]
"""The place of a queue in the tree, and its key; None: it has none."""


class UnitCounts(msgspec.Struct):
    """How many units of a queue, those of the queues below it included, are guaranteed and borrowed there."""

    guaranteed: Counter[str] = msgspec.field(default_factory=Counter)
    """By the resource that guarantees them."""
    borrowed: Counter[str] = msgspec.field(default_factory=Counter)
    """By resource that they hold: one that holds several counts for each."""


class QuotaOverview(msgspec.Struct, frozen=True):
    """What is shown of all queues."""

    states: Sequence[QuotaState] = ()
    """Parents before their children. The queues that are left out are one each, see `others`."""
    pending: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By name, also of `others`: how many pods wait, those of the queues below included."""
    rejected: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By queue, how many of its pending pods fit on no node at their last attempt; 0 where none did."""
    units: Mapping[str, UnitCounts] = msgspec.field(default_factory=dict)
    """By name, also of `others`; empty where they were not counted."""
    left_out: int = 0
    """Queues that are not shown by themselves."""


def others(name: str) -> str:
    """Return how those queues by a key are called together that are not shown; no queue has such a name."""
    return f"{name} (others)"


def overview(
    usage: QuotaUsage,
    pending: Iterable[PodInfo],
    *,
    rejected: Container[str] = (),
    units: Mapping[str, UnitCounts] = MappingProxyType({}),
    most: int,
) -> Generator[None, None, QuotaOverview]:
    """Return what is shown, made in steps; between two of them anything may happen.

    Args:
        usage: of the queues.
        pending: pods that wait.
        rejected: the uids of those that no node took at their last attempt.
        units: of each queue, by name.
        most: how many queues by a key are shown by themselves.
    """
    waiting: dict[At, Counter[str]] = {}
    rejections: Counter[At] = Counter()
    pods = iter(pending)
    while chunk := list(islice(pods, _COUNTED_AT_ONCE)):
        for pod in chunk:
            if (found := usage.tree.find(pod.template)) is not None:
                waiting.setdefault(found, Counter())[pod.namespace] += 1
                rejections[found] += pod.uid in rejected
        yield
    keyed: dict[At, Quota] = dict(usage.by_key())
    for number, at in enumerate(waiting.keys() - keyed.keys()):
        if at[1] is not None:
            keyed[at] = usage.queue_at(*at)
        if not number % _LOOKED_AT_AT_ONCE:
            yield
    shown = set(keyed) if len(keyed) <= most else (yield from _chosen(usage, keyed, waiting, most))
    made = yield from _of(usage, keyed, waiting, rejections, shown)
    if not units:
        return made
    summed: dict[str, UnitCounts] = {}
    names = {queue.name: others(usage.tree.queues[at[0]].name) for at, queue in keyed.items() if at not in shown}
    for number, (name, counts) in enumerate(units.items()):
        into = summed.setdefault(names.get(name, name), UnitCounts())
        into.guaranteed.update(counts.guaranteed)
        into.borrowed.update(counts.borrowed)
        if not number % _LOOKED_AT_AT_ONCE:
            yield
    listed = {state.name for state in made.states}
    return msgspec.structs.replace(made, units={name: each for name, each in summed.items() if name in listed})


def _chosen(
    usage: QuotaUsage, keyed: Mapping[At, Quota], waiting: Mapping[At, Counter[str]], most: int
) -> Generator[None, None, set[At]]:
    """Return the queues that are shown: namespaces take turns, each with its largest."""
    sizes: dict[At, tuple[float, int]] = {}
    places: dict[str, list[At]] = defaultdict(list)
    looked_at = 0
    for at, queue in keyed.items():
        namespaces = waiting[at].copy() if at in waiting else Counter[str]()
        sizes[at] = usage.part(queue), len(queue.members) + namespaces.total()
        looked_at += 1
        if not looked_at % _LOOKED_AT_AT_ONCE:
            yield
        for pod in list(queue.members.values()):
            namespaces[pod.namespace] += 1
            looked_at += 1
            if not looked_at % _LOOKED_AT_AT_ONCE:
                yield
        for namespace in namespaces:
            places[namespace].append(at)

    def size(at: At) -> tuple[tuple[float, int], str, int]:
        return sizes[at], at[1] or "", at[0]

    turns: dict[At, int] = {}
    for found in places.values():
        best: list[At] = []
        for start in range(0, len(found), _COUNTED_AT_ONCE):
            best = heapq.nlargest(most, best + found[start : start + _COUNTED_AT_ONCE], key=size)
            yield
        for turn, at in enumerate(best):
            turns[at] = min(turns.get(at, turn), turn)
    return set(heapq.nlargest(most, turns, key=lambda at: (-turns[at], size(at))))


def _of(
    usage: QuotaUsage,
    keyed: Mapping[At, Quota],
    waiting: Mapping[At, Counter[str]],
    rejections: Mapping[At, int],
    shown: Collection[At],
) -> Generator[None, None, QuotaOverview]:
    """Return the overview with these queues by a key."""
    tree = usage.tree
    listed: dict[int, list[QuotaState]] = defaultdict(list)
    rest: dict[int, _Sum] = {}
    for number, (at, queue) in enumerate(keyed.items()):
        state = usage.state(queue)
        if at in shown:
            listed[at[0]].append(state)
        else:
            rest.setdefault(at[0], _Sum()).add(state)
        if not number % _STATES_AT_ONCE:
            yield
    pending: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    for number, (at, namespaces) in enumerate(waiting.items()):
        spec, pods = tree.queues[at[0]], namespaces.total()
        names = [spec.name if at[1] is None else keyed[at].name if at in shown else others(spec.name)]
        while spec.parent is not None:
            spec = tree.queues[spec.parent]
            names.append(spec.name)
        for name in names:
            pending[name] += pods
            rejected[name] += rejections[at]
        if not number % _COUNTED_AT_ONCE:
            yield
    states: list[QuotaState] = []
    for place in _in_order(usage):
        spec = tree.queues[place]
        if spec.key is None:
            states.append(usage.state(usage.queue_at(place, None)))
            yield
            continue
        states += sorted(listed[place], key=lambda each: (-each.share, each.name))
        if place in rest:
            states.append(rest[place].state(others(spec.name)))
    return QuotaOverview(
        states,
        pending,
        {state.name: rejected[state.name] for state in states},
        left_out=len(keyed) - len(shown),
    )


_STATES_AT_ONCE = 50
_COUNTED_AT_ONCE = 500
"""Pods that wait: 1 ms."""
_LOOKED_AT_AT_ONCE = 200
"""Queues by a key, and their pods: 1 ms."""


def _in_order(usage: QuotaUsage) -> Iterator[int]:
    """Yield the places of all declared queues: each before those below it, which follow at once."""
    below: dict[int | None, list[int]] = defaultdict(list)
    for place, spec in enumerate(usage.tree.queues):
        below[spec.parent].append(place)
    stack = list(reversed(below[None]))
    while stack:
        place = stack.pop()
        yield place
        stack.extend(reversed(below[place]))


class _Sum:
    """Several queues of one declaration as one."""

    def __init__(self) -> None:
        self._first: QuotaState | None = None
        self._queues = self._pods = 0
        self._amounts: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, state: QuotaState) -> None:
        """Add one."""
        self._first = self._first or state
        self._queues += 1
        self._pods += state.pods
        for name in _AMOUNTS:
            self._amounts[name].update(getattr(state, name))

    def state(self, name: str) -> QuotaState:
        """Return the sum; there is no limit for it, and a share would mean nothing."""
        assert self._first is not None
        amounts = {each: dict(self._amounts[each]) for each in _AMOUNTS}
        return msgspec.structs.replace(
            self._first, name=name, maximum={}, share=0.0, pods=self._pods, others=self._queues, **amounts
        )


_AMOUNTS = ("guaranteed", "lend", "used", "will", "borrowed", "past")
