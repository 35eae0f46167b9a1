"""Quotas with borrowing: the tree of queues, what the pods of each use, and what is left for one more.

Amounts are whole numbers in column units (cpu in millicores, others in units). All queues stand in one tree below
the cluster itself, whose limit is what its usable nodes offer. A pod counts from `place` to `displace`, at its queue
and at all queues above it; a pod that is terminating counts until it is gone.

What a queue *will* use when the evictions under way are done decides who is evicted: what it uses, less what is leaving
(terminating, or being evicted), and what is nominated (pods for which victims were chosen, and that hold no node yet).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from weakref import WeakSet, WeakValueDictionary

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.claimed_devices import claim_keys, claimed_devices, device_class
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.nodes import IntArray, NodeTable
from kube_policy_scheduler.cluster.own_facts import OwnFacts
from kube_policy_scheduler.cluster.pod_counters import Placed, PodCounters
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.quotas.past_usage import FADED, PastUsage
from kube_policy_scheduler.cluster.quotas.usable_capacity import UsableCapacity
from kube_policy_scheduler.cluster.requests import PodRequests
from kube_policy_scheduler.times import Steady

NO_LIMIT = 2**63 - 1
MOST_FADED = 1000
"""Queues by a key without pods whose past usage is kept for good: those with the largest. Up to twice as many are
known."""
MOST_RECALLED = 8
"""Pasts that wait for the memory to begin; a few seconds after the start it has."""
_CHANGES_KEPT = 1024
"""Changes of queues that are kept; a reader that lags further behind takes all to have changed."""
MOST_BORROWERS = 5
"""Queues that a rejection names."""
COUNTED_AT_ONCE = 2_000
"""Pods that are counted in one step: 3 ms."""
CLUSTER_QUEUE = "(cluster)"
"""The name of the top of the tree."""
Amounts = tuple[tuple[int, int], ...]
"""What is requested: places in `QuotaTree.resources`, each with an amount above 0."""
Share = tuple[float, ...]
"""The shares on the way from below the cluster down to a queue; the smaller one is served first."""


class QuotaSpec(msgspec.Struct, frozen=True, eq=False):
    """A queue as declared; amounts by place in `QuotaTree.resources`."""

    name: str
    parent: int | None
    """Its place in `QuotaTree.queues`, before its own; None: directly below the cluster."""
    takes: Callable[[PodTemplate], bool] | None
    """Whether it takes pods of a template that its parent takes; None: all of them."""
    may_take: Callable[[PodTemplate], bool]
    """Whether it may take some pod in the namespace of a template, if its parent takes that pod."""
    key: Callable[[PodTemplate], str | None] | None
    """There is one queue for each value; pods without a value are not taken."""
    minimum: tuple[int, ...]
    maximum: tuple[int, ...]
    """`NO_LIMIT` where it has none."""
    kept: tuple[int, ...]
    """The part of `minimum` that others may not use."""
    weight: float = 1.0


class Asked(msgspec.Struct, eq=False):
    """What pods of a template ask for of the queues of a tree."""

    tree: QuotaTree
    at: tuple[int, str | None] | None
    """The place of their queue in the tree, and its key; None: they are of no queue."""
    has_claims: bool
    """Whether claims that they have may count, too: what these ask for is each pod's own."""
    demand: PodRequests | None = None
    """Of the last pod that was asked about; those that were not resized share one."""
    counted: Amounts = ()
    """What that one counts for."""

    def amounts(self, pod: PodInfo) -> Amounts:
        """Return what a pod of the template counts for without its claims."""
        if pod.demand is not self.demand:
            self.demand, self.counted = pod.demand, self.tree.amounts_of(pod.demand.requests)
        return self.counted


class QuotaTree(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All queues; compared by identity."""

    queues: tuple[QuotaSpec, ...]
    """Parents before their children; siblings in the order in which they are asked."""
    resources: tuple[str, ...]
    """The resources that any of them names."""
    half_life_seconds: float | None = None
    """Of past usage in the fair order; None: only present usage counts."""
    shares_decide: bool = False
    """Whether there is a `reclaim fair`: among borrowers of different queues shares decide then, not priorities."""

    @cached_property
    def by_strength(self) -> tuple[int, ...]:
        """Return the places of all resources, that of which a guarantee is strongest first.

        Devices and extended resources in the order in which the queues name them, DeviceClasses, cpu, memory,
        ephemeral-storage, pods. Of two guarantees that cannot both hold, the weaker one yields.
        """
        of_classes = set(self.classes.values())
        weak = {name: 2 + number for number, name in enumerate(("cpu", "memory", "ephemeral-storage", "pods"))}
        return tuple(
            sorted(
                range(len(self.resources)), key=lambda place: weak.get(self.resources[place], int(place in of_classes))
            )
        )

    @cached_property
    def strength(self) -> tuple[int, ...]:
        """Return by place how weak a guarantee of the resource is: 0 is the strongest."""
        found = [0] * len(self.resources)
        for number, place in enumerate(self.by_strength):
            found[place] = number
        return tuple(found)

    @cached_property
    def classes(self) -> Mapping[str, int]:
        """Return the places of the resources that count claimed devices, by DeviceClass."""
        found = ((device_class(name), place) for place, name in enumerate(self.resources))
        return {name: place for name, place in found if name is not None}

    def find(self, template: PodTemplate) -> tuple[int, str | None] | None:
        """Return the place of the queue that pods of a template belong to, with its key; None: no queue."""
        return self.asked(template).at

    def may_find(self, template: PodTemplate) -> bool:
        """Return whether some pod in the namespace of a template may belong to a queue."""
        return any(spec.parent is None and spec.may_take(template) for spec in self.queues)

    def asked(self, template: PodTemplate) -> Asked:
        """Return what pods of a template ask for."""
        found: Asked | None = template.memo.get("queue")
        if found is None or found.tree is not self:
            has_claims = bool(self.classes) and bool(template.spec.resource_claims)
            found = template.memo["queue"] = Asked(self, self._find(template), has_claims)
        return found

    def _find(self, template: PodTemplate) -> tuple[int, str | None] | None:
        best: tuple[int, str | None] | None = None
        for place, spec in enumerate(self.queues):
            above = best[0] if best is not None else None
            if spec.parent != above or (spec.takes is not None and not spec.takes(template)):
                continue
            key = spec.key(template) if spec.key is not None else None
            if spec.key is None or key is not None:
                best = place, key
        return best

    def amounts(self, pod: PodInfo) -> Amounts:
        """Return what a pod counts for without its claims; computed once for all pods of a template, unless resized."""
        return self.asked(pod.template).amounts(pod)

    def amounts_of(self, requests: Mapping[str, int]) -> Amounts:
        """Return what requests by resource, in column units, count for."""
        found = ((r, 1 if name == "pods" else requests.get(name, 0)) for r, name in enumerate(self.resources))
        return tuple((r, amount) for r, amount in found if amount > 0)


class Quota:
    """One queue, and what its pods use. Lists are by place in `QuotaTree.resources`."""

    __slots__ = (
        "__weakref__",
        "_above",
        "charged",
        "children",
        "depth",
        "direct",
        "inner",
        "kept",
        "leaving",
        "limited_by",
        "maximum",
        "members",
        "minimum",
        "name",
        "nominated",
        "parent",
        "priorities",
        "remembered",
        "used",
        "weight",
    )

    def __init__(self, name: str, parent: Quota | None, spec: QuotaSpec | None, size: int, *, keeps: bool) -> None:
        """Begin without pods.

        Args:
            name: of the queue.
            parent: the queue above; None: it is the cluster.
            spec: as it is declared; None for the cluster.
            size: the number of resources.
            keeps: whether any queue of the tree keeps what it does not lend.
        """
        zeros = (0,) * size
        self.name, self.parent = name, parent
        self.minimum = spec.minimum if spec is not None else zeros
        self.maximum = spec.maximum if spec is not None else (NO_LIMIT,) * size
        self.limited_by: tuple[Quota | None, ...] = (None,) * size
        """The nearest queue above that has a `maximum` of the resource; None: there is none."""
        if parent is not None:
            limits = zip(parent.maximum, parent.limited_by, strict=True)
            self.limited_by = tuple(parent if most < NO_LIMIT else above for most, above in limits)
        self.kept = spec.kept if spec is not None else zeros
        self.weight = spec.weight if spec is not None else 1.0
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self._above: tuple[Quota, ...] = (parent, *parent._above) if parent is not None and parent.depth else ()
        self.used = [0] * size
        """By its pods and those of all queues below."""
        self.leaving = [0] * size
        """What of it terminating pods use, and pods that are being evicted."""
        self.nominated = [0] * size
        """What nominated pods request that hold no node yet."""
        self.direct = [0] * size
        """By its own pods; like the next one, only counted if some queue keeps what it does not lend."""
        self.inner = [0] * size
        """What the queues below are charged."""
        self.charged = [0] * size if keeps else self.used
        """What others cannot use: what is used, or kept for it."""
        self.remembered: list[float] | None = None
        """Usage with the memory of a half-life; None without one."""
        self.members: dict[str, PodInfo] = {}
        """Its own pods, by uid."""
        self.priorities: Counter[int] = Counter()
        """How many of its own pods have a priority."""
        self.children: dict[str, Quota] = {}

    def path(self) -> tuple[Quota, ...]:
        """Return the queue and those above it, without the cluster."""
        return (self, *self._above) if self.parent is not None else ()

    def will(self, resource: int) -> int:
        """Return what it uses of a resource when the evictions under way are done."""
        return self.used[resource] - self.leaving[resource] + self.nominated[resource]

    def over(self, resource: int) -> int:
        """Return by how much it will be above its guaranteed amount of a resource; negative below."""
        return self.will(resource) - self.minimum[resource]

    def __repr__(self) -> str:
        return f"Quota({self.name})"


class QuotaRejection(msgspec.Struct, frozen=True):
    """Why a request is not admitted."""

    queue: str
    """Of the request."""
    at: str
    """The queue whose limit is reached: itself, or one above."""
    resource: str
    used: int
    """There."""
    requested: int
    limit: int
    """What may be used there; of the cluster, what its nodes offer."""
    kept: int
    """How much of the limit is kept for the unused guarantees of others."""
    borrowers: tuple[tuple[str, int], ...]
    """Queues without children below `at` that borrow the resource, and how much, those that borrow most first."""

    @property
    def short(self) -> int:
        """Return how much is missing."""
        return self.used + self.kept + self.requested - self.limit

    @property
    def is_of_nodes(self) -> bool:
        """Return whether more nodes would help: the limit is what they offer."""
        return self.at == CLUSTER_QUEUE


class QuotaState(msgspec.Struct, frozen=True):
    """One queue, to be shown. Amounts are by resource, in column units."""

    name: str
    parent: str | None
    depth: int
    """1 for those directly below the cluster."""
    guaranteed: Mapping[str, int]
    maximum: Mapping[str, int]
    """Only of limited resources."""
    lend: Mapping[str, int]
    used: Mapping[str, int]
    borrowed: Mapping[str, int]
    """What will be used above the guaranteed amount."""
    share: float
    weight: float
    pods: int
    """Of this queue and those below."""
    past: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What the fair order counts of its past; empty without a memory."""
    will: Mapping[str, int] = msgspec.field(default_factory=dict)
    """What is used when the evictions under way are done."""
    others: int = 0
    """Number of queues of which this is the sum: it is none itself. 0: it is one."""


class QuotaUsage:
    """What the pods on nodes use of each queue. Follows the cluster; undone dry runs leave no trace."""

    def __init__(
        self,
        tree: QuotaTree,
        nodes: NodeTable,
        pods: Iterable[PodInfo] = (),
        *,
        node_of: Callable[[str], str | None] = lambda uid: None,
        claims: Callable[[str], objects.ResourceClaim | None] = lambda key: None,
        ahead: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Count pods, and follow the changes from then on.

        Args:
            tree: the queues.
            nodes: their allocatable resources are what the queues share.
            pods: those on nodes.
            node_of: returns the node that a pod counts on; None: the one that the pod names.
            claims: returns a claim by `namespace/name`.
            ahead: by how many seconds the wall clock, by which pods started, is ahead of the steady one.
        """
        self._ahead, self._node_of = ahead, node_of
        self.tree, self._nodes, self._claims = tree, nodes, claims
        self._usable = UsableCapacity(nodes, tree.resources)
        self._leaving: dict[str, tuple[Quota, PodInfo]] = {}
        """Pods on nodes that are terminating, or are being evicted, by uid."""
        self._evicted: set[str] = set()
        """The uids of those that are being evicted, and of which the watch does not show it yet."""
        self._nominated: dict[str, tuple[Quota, Amounts, PodInfo]] = {}
        """By uid: nominated pods without a node, and what they count for."""
        self.promised_templates: Counter[PodTemplate] = Counter()
        """How many pods of which templates count as nominated."""
        self._set_aside: set[str] = set()
        """The uids of those that count for nothing now, see `without_promises`."""
        self._outside: set[str] = set()
        """The uids of counted pods of no queue."""
        self._promised_claims: dict[str, str] = {}
        """By claim, the nominated pod that counts for it."""
        self._users: dict[str, dict[str, PodInfo]] = {}
        """By claim: the pods that use it, by uid. It counts for the one whose uid comes first."""
        self._counted: dict[str, Amounts] = {}
        """What pods with claims count for, by uid."""
        size = len(tree.resources)
        self._size = size
        self._keeps = any(any(spec.kept) for spec in tree.queues)
        self.top = Quota(CLUSTER_QUEUE, None, None, size, keeps=self._keeps)
        self._static: list[Quota] = []
        self._keyed: dict[tuple[int, str], Quota] = {}
        """Queues by a key with pods on nodes, by place in the tree and key."""
        self._empty: WeakValueDictionary[tuple[int, str], Quota] = WeakValueDictionary()
        """Those without, while somebody asks about them: two that ask mean the same queue."""
        self.changed: Journal[Quota] = Journal(most=_CHANGES_KEPT)
        """The queues whose own pods changed, so that their share and those of the ones above them may have, too."""
        self._kept_at = -1
        self._kept_borrowers: dict[tuple[Quota, int], list[tuple[str, int]]] = {}
        self._lowest_borrower: int | None = None
        """These two are as of `_kept_at`: many pods are rejected between two changes, and there may be many queues."""
        self.common_levels = _common_levels(tree)
        """Levels at the top that all queues have in common: their shares decide nothing."""
        self._remembered_at: Steady | None = None
        self._faded: dict[str, list[float]] = {}
        """By name, the past usage of queues by a key that have no pods on nodes."""
        self._recalled: deque[PastUsage] = deque(maxlen=MOST_RECALLED)
        """What is to be recalled when the memory begins; without a half-life, by later queues."""
        self._capacity: tuple[int, ...] | None = None
        for spec in tree.queues:
            parent = self._static[spec.parent] if spec.parent is not None else self.top
            queue = Quota(spec.name, parent, spec, size, keeps=self._keeps)
            self._static.append(queue)
            if spec.key is None:
                parent.children[spec.name] = queue
                self._keep(queue, 1)
        self.place_many(pods)

    # --- queues ------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Let queues no longer know those below them: nobody asks for them, and memory in a circle may stay for good.

        The garbage collector does not look at what has been there for long.
        """
        for queue in list(self.queues()):
            queue.children.clear()
        self.top.children.clear()

    def quota_of(self, template: PodTemplate) -> Quota | None:
        """Return the queue that pods of a template belong to; None: no quota applies to them."""
        found = self.tree.asked(template).at
        if found is None:
            return None
        return self._static[found[0]] if found[1] is None else self.queue_at(*found)

    def declared(self, template: PodTemplate) -> str:
        """Return the name, as declared, of the queue that pods of a template belong to; "" if they belong to none."""
        found = self.tree.find(template)
        return self.tree.queues[found[0]].name if found is not None else ""

    def queue_at(self, place: int, key: str | None) -> Quota:
        """Return the queue at a place of the tree, with its key."""
        if key is None:
            return self._static[place]
        known = self._keyed.get((place, key))
        return known if known is not None else self._without_pods(place, key)

    def _without_pods(self, place: int, key: str) -> Quota:
        """Return a queue of one key that has no pods on nodes; the tree has it from its first pod on."""
        queue = self._empty.get((place, key))
        if queue is None:
            spec, like = self.tree.queues[place], self._static[place]
            name = f"{spec.name}/{key}"
            queue = Quota(name, like.parent, spec, self._size, keeps=self._keeps)
            self._empty[place, key] = queue
        if self._remembered_at is not None:
            queue.remembered = self._faded.get(queue.name, [0.0] * self._size)
        return queue

    def queues(self) -> Iterator[Quota]:
        """Yield all queues, parents before their children; of those by key, the ones that have pods."""
        stack = list(reversed(self.top.children.values()))
        while stack:
            queue = stack.pop()
            yield queue
            stack.extend(reversed(queue.children.values()))

    def by_key(self) -> Iterator[tuple[tuple[int, str], Quota]]:
        """Yield those by a key that have pods, with their place and key."""
        yield from self._keyed.items()

    def named(self, name: str) -> Quota | None:
        """Return a queue by its name."""
        return next((queue for queue in self.queues() if queue.name == name), None)

    # --- counting ----------------------------------------------------------------------------------------

    def place(self, pod: PodInfo, node_name: str = "") -> None:
        """Count a pod on a node; "": on the one that it names."""
        asked, uid = self.tree.asked(pod.template), pod.uid
        self._stand(pod, node_name, 1, of_queue=asked.at is not None)
        if asked.at is None:
            self._outside.add(uid)
            return
        place, key = asked.at
        if key is None:
            queue = self._static[place]
        else:
            known = self._keyed.get((place, key))
            if known is None:
                known = self._keyed[place, key] = self._without_pods(place, key)
                del self._empty[place, key]
                assert known.parent is not None
                known.parent.children[known.name] = known
                self._faded.pop(known.name, None)
                self._keep(known, 1)
            queue = known
        if self._nominated:
            self._hold(uid, 1)
        queue.members[uid] = pod
        queue.priorities[pod.template.priority] += 1
        if asked.has_claims:
            self._place_with_claims(pod)
        else:
            self._add(queue, asked.amounts(pod), 1)
        if pod.terminating or uid in self._evicted:
            self._leave(queue, pod)

    def _stand(self, pod: PodInfo, node_name: str, step: int, *, of_queue: bool) -> None:
        """Count what a pod takes of what queues share, or gives back."""
        changes = self._usable.count(
            pod.demand, node_name or self._node_of(pod.uid) or pod.node_name, step, of_queue=of_queue
        )
        if changes and self._keeps:
            self.changed.note(self.top)

    def place_many(self, pods: Iterable[PodInfo]) -> None:
        """Count pods: the same as `place` for each, but faster where many are of one template."""
        alike: dict[PodTemplate, tuple[Quota, list[PodInfo]]] = {}
        """What is left to be counted of templates without claims."""
        for pod in pods:
            if not pod.terminating and (known := alike.get(pod.template)) is not None:
                known[0].members[pod.uid] = pod
                known[1].append(pod)
                self._stand(pod, "", 1, of_queue=True)
                continue
            self.place(pod)  # a queue by a key begins with its first pod
            if not self._has_claims(pod) and (queue := self.quota_of(pod.template)) is not None:
                alike.setdefault(pod.template, (queue, []))
        for template, (queue, others) in alike.items():
            if others:
                queue.priorities[template.priority] += len(others)
                self._add(queue, self.tree.amounts(others[0]), len(others))

    def counts(self, pod: PodInfo) -> bool:
        """Return whether a pod on a node is counted."""
        queue = self.quota_of(pod.template)
        return pod.uid in (queue.members if queue is not None else self._outside)

    def update(self, pod: PodInfo) -> None:
        """Take over a pod that counts, and of which only what does not count has changed: its start, its readiness."""
        queue = self.quota_of(pod.template)
        if queue is not None:
            queue.members[pod.uid] = pod
            for key in claim_keys(pod) if pod.uid in self._counted else ():
                self._users[key][pod.uid] = pod

    def displace(self, pod: PodInfo, node_name: str = "") -> None:
        """Count a pod on a node no longer; see `place`."""
        found = self.tree.find(pod.template)
        self._stand(pod, node_name, -1, of_queue=found is not None)
        if found is None:
            self._outside.discard(pod.uid)
            return
        place, key = found
        queue = self._static[place] if key is None else self._keyed[place, key]
        if pod.uid in self._leaving:
            self._stay(pod.uid)
        priority = queue.members.pop(pod.uid).priority
        if self._nominated:
            self._hold(pod.uid, -1)
        queue.priorities[priority] -= 1
        if not queue.priorities[priority]:
            del queue.priorities[priority]
        if pod.uid in self._counted:
            self._displace_with_claims(pod, queue)
        else:
            self._add(queue, self.tree.amounts(pod), -1)
        if key is not None and not queue.members:
            del self._keyed[place, key]
            assert queue.parent is not None
            del queue.parent.children[queue.name]
            if queue.remembered is not None:
                self._faded[queue.name] = queue.remembered
                if len(self._faded) > 2 * MOST_FADED:  # not with each of them: it is a look at all
                    self._forget_smallest()
            self._keep(queue, -1)
            self._empty[place, key] = queue

    # --- what is leaving, and what is promised -----------------------------------------------------------

    def evicted(self, uids: Iterable[str], pod_of: Callable[[str], PodInfo | None]) -> None:
        """Count pods on nodes as leaving: they are being evicted. pod_of: returns a placed pod by its uid."""
        for uid in uids:
            self._evicted.add(uid)
            pod = pod_of(uid)
            queue = self.quota_of(pod.template) if pod is not None else None
            if pod is not None and queue is not None and uid in queue.members and uid not in self._leaving:
                self._leave(queue, pod)

    def not_evicted(self, uids: Iterable[str]) -> None:
        """Count pods as staying that were being evicted, unless they are terminating."""
        for uid in uids:
            self._evicted.discard(uid)
            known = self._leaving.get(uid)
            if known is not None and not known[1].terminating:
                self._stay(uid)

    def _leave(self, queue: Quota, pod: PodInfo) -> None:
        self._leaving[pod.uid] = queue, pod
        self._raise_will(queue, self.amounts(pod), -1)

    def _stay(self, uid: str) -> None:
        queue, pod = self._leaving.pop(uid)
        self._raise_will(queue, self.amounts(pod), 1)

    def _raise_will(self, queue: Quota, amounts: Amounts, step: int) -> None:
        """Count amounts as leaving (-1), or as staying (1), at a queue and all above it."""
        self.changed.note(queue)
        below: Quota | None = queue
        while below is not None:
            for resource, amount in amounts:
                below.leaving[resource] -= step * amount
            below = below.parent

    def nominate(self, pod: PodInfo) -> None:
        """Count a pending pod as nominated: victims were chosen for it."""
        self.end_nomination(pod.uid)
        queue = self.quota_of(pod.template)
        if queue is None:
            return
        total = Counter(dict(self.tree.amounts(pod)))
        for key in claim_keys(pod) if self._has_claims(pod) else ():
            if key not in self._promised_claims:
                counted = self.claimed(key)
                if counted:
                    self._promised_claims[key] = pod.uid
                    total.update(dict(counted))
        amounts = tuple(sorted(total.items()))
        self._nominated[pod.uid] = queue, amounts, pod
        if pod.uid not in queue.members:
            self._promise(queue, amounts, 1)
            self._count_promised(pod, 1)

    def end_nomination(self, uid: str) -> None:
        """Count a pod as nominated no longer: it holds a node, is gone, or gets no room."""
        known = self._nominated.pop(uid, None)
        if known is None:
            return
        queue, amounts, pod = known
        for key in claim_keys(pod) if self._has_claims(pod) else ():
            if self._promised_claims.get(key) == uid:
                del self._promised_claims[key]
        if uid not in queue.members:
            self._promise(queue, amounts, -1)
            self._count_promised(pod, -1)

    def _hold(self, uid: str, step: int) -> None:
        """Count a nominated pod as used instead while it is placed, to try something out (1), or no longer (-1)."""
        known = self._nominated.get(uid)
        if known is not None:
            self._promise(known[0], known[1], -step, notes=False)
            self._count_promised(known[2], -step)

    def _count_promised(self, pod: PodInfo, step: int) -> None:
        counts = self.promised_templates
        counts[pod.template] += step
        if not counts[pod.template]:
            del counts[pod.template]

    def _promise(self, queue: Quota, amounts: Amounts, step: int, *, notes: bool = True) -> None:
        if notes:
            self.changed.note(queue)
        below: Quota | None = queue
        while below is not None:
            for resource, amount in amounts:
                below.nominated[resource] += step * amount
            below = below.parent

    def nominated(self) -> Mapping[str, tuple[Quota, Amounts, PodInfo]]:
        """Return by uid the nominated pods without a node, with their queue and what they count for."""
        return self._nominated

    def is_promised(self, uid: str) -> bool:
        """Return whether what a pod needs counts as nominated now, so that its queue will use it."""
        return uid in self._nominated and uid not in self._set_aside and uid not in self._nominated[uid][0].members

    def asks(self, pod: PodInfo) -> Amounts:
        """Return what a pending pod adds to what its queue will use: nothing once it is nominated."""
        return () if self._nominated and self.is_promised(pod.uid) else self.amounts(pod)

    def promised_to(self, uid: str) -> tuple[Quota, Amounts] | None:
        """Return the queue of a nominated pod, and what it counts for there; None: it is not nominated."""
        known = self._nominated.get(uid)
        return known[:2] if known is not None else None

    @contextmanager
    def without_promises(self, uids: Iterable[str]) -> Iterator[None]:
        """Count nothing as nominated for some pods for as long as the context is open; no change is noted."""
        known = [self._nominated[uid] for uid in uids if self.is_promised(uid)]
        for queue, amounts, pod in known:
            self._set_aside.add(pod.uid)
            self._promise(queue, amounts, -1, notes=False)
        try:
            yield
        finally:
            for queue, amounts, pod in known:
                self._set_aside.discard(pod.uid)
                self._promise(queue, amounts, 1, notes=False)

    def is_leaving(self, uid: str) -> bool:
        """Return whether a pod of a queue is terminating, or is being evicted."""
        return uid in self._leaving

    # --- claimed devices ---------------------------------------------------------------------------------

    def amounts(self, pod: PodInfo) -> Amounts:
        """Return what a pod counts for: a placed one does, a pending one would."""
        asked = self.tree.asked(pod.template)
        return self.request((pod,)) if asked.has_claims else asked.amounts(pod)

    def request(self, pods: Iterable[PodInfo]) -> Amounts:
        """Return what some pods count for together; a claim that they share counts once."""
        total: Counter[int] = Counter()
        seen: set[str] = set()
        for pod in pods:
            known = self._counted.get(pod.uid)
            if known is None and self._has_claims(pod):
                keys = [key for key in claim_keys(pod) if key not in seen and not self._users.get(key)]
                seen.update(keys)
                known = self._with_devices(pod, keys)
            for resource, amount in known if known is not None else self.tree.amounts(pod):
                total[resource] += amount
        return tuple(sorted(total.items()))

    def request_of_many(self, pod: PodInfo, number: int) -> Amounts:
        """Return what so many pods like a pending one would count for, each with claims of its own like this one's."""
        total = Counter({resource: number * amount for resource, amount in self.tree.amounts(pod)})
        for key, is_own in self.claims_of(pod):
            for resource, amount in self.claimed(key):
                total[resource] += amount * (number if is_own else 1)
        return tuple(sorted(total.items()))

    def claims_of(self, pod: PodInfo) -> Iterator[tuple[str, bool]]:
        """Yield the claims of a pod as `namespace/name`, and whether they were made for this pod alone."""
        if self._has_claims(pod):
            made = {f"{pod.namespace}/{name}" for name in pod.claim_names.values()}
            yield from ((key, key in made and not self._is_shared(key, pod)) for key in claim_keys(pod))

    def _is_shared(self, key: str, pod: PodInfo) -> bool:
        """Return whether a claim that was made of a template was made for a PodGroup."""
        claim = self._claims(key)
        owners = (claim.metadata.owner_references or ()) if claim is not None else ()
        return any(owner.controller and owner.uid != pod.uid for owner in owners)

    def claimed(self, key: str) -> Amounts:
        """Return what a claim adds to the first pod that counts for it; nothing once a placed pod does."""
        claim = self._claims(key) if not self._users.get(key) else None
        counted = claimed_devices(claim).items() if claim is not None else ()
        classes = self.tree.classes
        return tuple(sorted((classes[name], number) for name, number in counted if name in classes and number > 0))

    def claim_changed(self, key: str) -> None:
        """Count a claim again: it came or went, or has got its devices."""
        if users := self._users.get(key):
            self._recount(users[min(users)])

    def _has_claims(self, pod: PodInfo) -> bool:
        return self.tree.asked(pod.template).has_claims

    def _with_devices(self, pod: PodInfo, keys: Iterable[str]) -> Amounts:
        """Return what a pod counts for with some of its claims."""
        total = Counter(dict(self.tree.amounts(pod)))
        for key in keys:
            claim = self._claims(key)
            for name, number in claimed_devices(claim).items() if claim is not None else ():
                if (place := self.tree.classes.get(name)) is not None:
                    total[place] += number
        return tuple(sorted((place, amount) for place, amount in total.items() if amount > 0))

    def _place_with_claims(self, pod: PodInfo) -> None:
        self._counted[pod.uid] = ()
        for key in claim_keys(pod):
            users = self._users.setdefault(key, {})
            before = min(users, default=None)
            users[pod.uid] = pod
            if before is not None and pod.uid < before:
                self._recount(users[before])
        self._recount(pod)

    def _displace_with_claims(self, pod: PodInfo, queue: Quota) -> None:
        self._add(queue, self._counted.pop(pod.uid), -1)
        for key in claim_keys(pod):
            users = self._users[key]
            del users[pod.uid]
            if users:
                self._recount(users[min(users)])
            else:
                del self._users[key]

    def _recount(self, pod: PodInfo) -> None:
        """Bring what a placed pod counts for up to date."""
        queue = self.quota_of(pod.template)
        assert queue is not None
        amounts = self._with_devices(pod, (key for key in claim_keys(pod) if min(self._users[key]) == pod.uid))
        if amounts != (before := self._counted[pod.uid]):
            is_leaving = pod.uid in self._leaving
            if is_leaving:
                self._raise_will(queue, before, 1)
            self._add(queue, before, -1)
            self._add(queue, amounts, 1)
            self._counted[pod.uid] = amounts
            if is_leaving:
                self._raise_will(queue, amounts, -1)

    def _add(self, queue: Quota, amounts: Amounts, step: int) -> None:
        """Count amounts at a queue and at all above it so many times (`step`), or less (-1)."""
        self.changed.note(queue)
        self._shift(queue, amounts, step)

    @contextmanager
    def counting(self, more: Iterable[tuple[Quota, Amounts]], *, outside: Amounts = ()) -> Iterator[None]:
        """Count amounts of queues as used for as long as the context is open; no change is noted.

        outside: what pods of no queue use on usable nodes beside what they do.
        """
        counted = list[tuple[Quota, Amounts]]()
        begun = set[Quota]()
        """Queues without pods: as with a first pod, what they do not lend is kept, and is free again afterwards."""
        self._kept_at = -1
        self._usable.shift(outside, 1)
        try:
            for queue, amounts in more:
                if queue not in begun and queue.parent is not None and queue.name not in queue.parent.children:
                    begun.add(queue)
                    self._keep(queue, 1)
                self._shift(queue, amounts, 1)
                counted.append((queue, amounts))
            yield
        finally:
            self._kept_at = -1
            self._usable.shift(outside, -1)
            for queue, amounts in counted:
                self._shift(queue, amounts, -1)
            for queue in begun:
                self._keep(queue, -1)

    def _shift(self, queue: Quota, amounts: Amounts, step: int) -> None:
        for resource, amount in amounts:
            delta = step * amount
            if self._keeps:
                queue.direct[resource] += delta
                self._charge(queue, resource, delta)
                continue
            below: Quota | None = queue
            while below is not None:
                below.used[resource] += delta
                below = below.parent

    def _charge(self, queue: Quota, resource: int, delta: int) -> None:
        """Bring what is used and charged up to date, from a queue whose own usage changed to the top."""
        below: Quota | None = queue
        while below is not None:
            below.used[resource] += delta
            charged, kept, above = below.direct[resource] + below.inner[resource], below.kept[resource], below.parent
            if charged < kept:
                charged = kept
            if above is not None:
                above.inner[resource] += charged - below.charged[resource]
            below.charged[resource] = charged
            below = above

    def _keep(self, queue: Quota, step: int) -> None:
        """Begin (1) or stop (-1) to keep the amounts that a queue without pods does not lend."""
        for resource, kept in enumerate(queue.kept):
            if not kept:
                continue
            if step < 0:
                assert queue.parent is not None
                queue.parent.inner[resource] -= queue.charged[resource]
                queue.charged[resource] = 0
                self._charge(queue.parent, resource, 0)
            else:
                self._charge(queue, resource, 0)

    # --- admission ---------------------------------------------------------------------------------------

    def capacity(self) -> tuple[int, ...]:
        """Return what usable nodes offer of each resource, which is what shares are parts of in the fair order.

        What pods of no queue use there counts, too: without it, queues of one resource come in the same order, and all
        would have to be ordered again with each of these pods.

        Which devices of a class there are depends on its selectors: as many count as the queues at the top may use, or
        are guaranteed where they have no limit. No request is rejected for that.
        """
        if self._capacity is None:
            self._capacity = tuple(
                self._declared(place) if place in self._class_places else self._usable.offered(name)
                for place, name in enumerate(self.tree.resources)
            )
        return self._capacity

    @cached_property
    def _class_places(self) -> frozenset[int]:
        return frozenset(self.tree.classes.values())

    def _declared(self, place: int) -> int:
        roots = [spec for spec in self.tree.queues if spec.parent is None]
        limited = (spec.maximum[place] for spec in roots)
        return sum(
            limit if limit != NO_LIMIT else spec.minimum[place] for limit, spec in zip(limited, roots, strict=True)
        )

    def usable(self, resource: int) -> int:
        """Return how much of a resource queues share: what usable nodes offer, less what pods of no queue use there.

        Of DeviceClasses it is `capacity`.
        """
        if resource in self._class_places:
            return self.capacity()[resource]
        return self._usable.of(self.tree.resources[resource])

    def usable_rows(self) -> IntArray:
        """Return the rows of the nodes that count for `usable`, `int64[usable nodes]`, ascending."""
        return self._usable.rows()

    def nodes_changed(self, names: Iterable[str], pods_on: Callable[[str], Iterable[PodInfo]]) -> None:
        """Note that nodes came or went, or are in another state.

        Args:
            names: of the nodes.
            pods_on: returns the pods that count on a node.
        """
        self._capacity = None
        for name in names:
            there = (pod for pod in pods_on(name) if self.counts(pod))
            self._usable.node_changed(name, ((pod.demand, self.tree.find(pod.template) is not None) for pod in there))
        self.changed.note_all()

    def rejection(self, queue: Quota, amounts: Amounts) -> QuotaRejection | None:
        """Return why a request is not admitted; None: it is."""
        for resource, amount in amounts:
            at: Quota | None = queue
            while at is not None:
                limit = at.maximum[resource]
                if at.used[resource] + amount > limit:
                    return self._rejection(queue, at, resource, amount, limit, kept=0)
                at = at.limited_by[resource]
            if self._keeps and self._lacks(queue, resource, amount):
                kept = self.top.charged[resource] - self.top.used[resource]
                return self._rejection(queue, self.top, resource, amount, self.usable(resource), kept=kept)
        return None

    def _lacks(self, queue: Quota, resource: int, amount: int) -> bool:
        """Return whether too little of a resource can be lent for a request of a queue, where some of it is kept."""
        if resource in self._class_places:
            return False
        change, below = amount, queue
        while True:
            charged = max(below.direct[resource] + below.inner[resource] + change, below.kept[resource])
            change = charged - below.charged[resource]
            if below.parent is None:
                return change > 0 and charged > self.usable(resource)
            below = below.parent

    def lends_too_little(self, resource: int, amount: int) -> bool:
        """Return whether what is used and kept could not be had any more if pods of no queue used so much more."""
        if resource in self._class_places:
            return False
        charged, used = self.top.charged[resource], self.top.used[resource]
        return charged > used and charged > self.usable(resource) - amount

    def _rejection(
        self, queue: Quota, at: Quota, resource: int, amount: int, limit: int, *, kept: int
    ) -> QuotaRejection:
        others = (each for each in self._borrowers(at, resource) if each[0] != queue.name)
        found = tuple(islice(others, MOST_BORROWERS))
        return QuotaRejection(
            queue.name, at.name, self.tree.resources[resource], at.used[resource], amount, limit, kept, found
        )

    def _forget_if_changed(self) -> None:
        if self._kept_at != self.changed.end:
            self._kept_at = self.changed.end
            self._kept_borrowers.clear()
            self._lowest_borrower = None

    def lowest_priority_of_borrowers(self) -> int:
        """Return the lowest priority of a pod whose queue borrows anything; `NO_LIMIT` if no queue does."""
        self._forget_if_changed()
        if self._lowest_borrower is None:
            resources = range(self._size)
            borrowing = (each for each in self.queues() if each.members and any(each.over(r) > 0 for r in resources))
            self._lowest_borrower = min((min(each.priorities) for each in borrowing), default=NO_LIMIT)
        return self._lowest_borrower

    def _borrowers(self, at: Quota, resource: int) -> list[tuple[str, int]]:
        """Return the queues without children at or below one that borrow a resource, those that borrow most first."""
        self._forget_if_changed()
        known = self._kept_borrowers.get((at, resource))
        if known is None:
            known = self._kept_borrowers[at, resource] = self._find_borrowers(at, resource)
        return known

    def _find_borrowers(self, at: Quota, resource: int) -> list[tuple[str, int]]:
        stack, found = [at], []
        while stack:
            queue = stack.pop()
            stack.extend(queue.children.values())
            if not queue.children and queue.over(resource) > 0:
                found.append((queue.name, queue.over(resource)))
        return sorted(found, key=lambda each: (-each[1], each[0]))

    # --- guarantees --------------------------------------------------------------------------------------

    def branch(self, queue: Quota, other: Quota) -> tuple[list[Quota], list[Quota]]:
        """Return the paths of two queues, from below their nearest common ancestor down to each.

        A path is empty where one queue is the other, or is above it.
        """
        mine, theirs = list(queue.path()), list(other.path())
        while mine and theirs and mine[-1] is theirs[-1]:
            mine.pop()
            theirs.pop()
        return mine[::-1], theirs[::-1]

    # --- shares ------------------------------------------------------------------------------------------

    def share(self, queue: Quota) -> float:
        """Return the dominant share of a queue: what it will borrow by capacity and weight, of its largest resource."""
        return self._dominant(queue, self._will(queue))

    def _will(self, queue: Quota) -> list[float]:
        """Return what a queue uses of each resource when the evictions under way are done."""
        return [*map(queue.will, range(self._size))] if self._leaving or self._nominated else [*queue.used]

    def share_of(self, queue: Quota, resources: Iterable[int], more: Amounts = (), *, step: int = 1) -> float:
        """Return the share of a queue of some resources: what it will borrow, by what is usable and weight; the most.

        Args:
            queue: whose share.
            resources: their places; those that are short.
            more: amounts that are added first (`step` 1) or taken away (-1).
        """
        asked, highest = dict(more), 0.0
        for resource in resources:
            borrowed = queue.over(resource) + step * asked.get(resource, 0)
            if borrowed > 0:
                highest = max(highest, borrowed / (max(self.usable(resource), 1) * queue.weight))
        return highest

    def short(self, queue: Quota, amounts: Amounts) -> Iterator[tuple[int, Quota]]:
        """Yield the resources of which a request is not admitted: their places, and the queues whose limit is reached.

        That is the cluster where too little can be lent.
        """
        for resource, amount in amounts:
            at: Quota | None = queue
            while at is not None:
                if at.used[resource] + amount > at.maximum[resource]:
                    yield resource, at
                at = at.limited_by[resource]
            if self._keeps and self._lacks(queue, resource, amount):
                yield resource, self.top

    def part(self, queue: Quota) -> float:
        """Return what part of the cluster a queue uses, of the resource of which it uses most."""
        return self._part(queue.used)

    def _part(self, amounts: Iterable[float]) -> float:
        offered = self.capacity()
        return max((amount / max(most, 1) for amount, most in zip(amounts, offered, strict=True)), default=0.0)

    def _dominant(self, queue: Quota, used: Sequence[float]) -> float:
        # one division of whole numbers, rounded once: equal shares are equal, whatever the weights and the capacity
        capacity, highest = self._capacity or self.capacity(), 0.0
        for resource, guaranteed in enumerate(queue.minimum):
            borrowed = used[resource] - guaranteed
            if borrowed > 0:
                highest = max(highest, borrowed / (max(capacity[resource], 1) * queue.weight))
        return highest

    def order(self, queue: Quota, more: Amounts) -> Share:
        """Return the shares that decide the fair order, from below the cluster down to a queue.

        more: what the next pod of the queue asks for, which counts as if it was there.
        """
        return tuple(self.order_share(each, more) for each in queue.path())[::-1]

    def order_share(self, queue: Quota, more: Amounts) -> float:
        """Return the part of one queue in `order`."""
        used = self._will(queue)
        if queue.remembered is not None:  # present usage counts at once, or one queue would take all that is free
            used = list(map(max, used, queue.remembered))
        for resource, amount in more:
            used[resource] += amount
        return self._dominant(queue, used)

    # --- past usage --------------------------------------------------------------------------------------

    def remember(self, now: Steady) -> bool:
        """Bring the memory of past usage up to a time; return whether shares may have changed.

        u = (1 - A) * u + A * usage, A = 1 - 0.5 ** (seconds / half-life), as in Kueue (KKEP-4136); at most 64 times in
        a half-life, so that the order is not computed for each pod. The memory begins with what was recalled, and with
        the pods that run, as if their starts had been seen.
        """
        half_life = self.tree.half_life_seconds
        if half_life is None:
            return False
        before = self._remembered_at
        if before is not None and now - before < half_life / 64:
            return False
        self._remembered_at = now
        if before is None:
            for queue in self.queues():
                queue.remembered = [0.0] * self._size
            self._raise({}, self._of_running(now, half_life, since=-math.inf))
            while self._recalled:
                self.recall(self._recalled.popleft())
            return True
        keep = math.pow(0.5, max(0.0, now - before) / half_life)
        for queue in self.queues():
            old = queue.remembered if queue.remembered is not None else [0.0] * self._size
            queue.remembered = [keep * was + (1.0 - keep) * now for was, now in zip(old, queue.used, strict=True)]
        for name, left in list(self._faded.items()):
            self._faded[name] = rest = [keep * was for was in left]
            if max(rest) < FADED:
                del self._faded[name]
        return True

    def _forget_smallest(self) -> None:
        """Keep past usage only for the largest queues without pods, because tenants can create any number of queues."""
        if len(self._faded) > MOST_FADED:
            largest = sorted(self._faded.items(), key=lambda each: -self._part(each[1]))[:MOST_FADED]
            self._faded = dict(largest)

    def past_usage(self) -> PastUsage | None:
        """Return what is remembered; None before the memory has begun, or without a half-life."""
        if self._remembered_at is None:
            return None
        known = [(queue.name, queue.remembered) for queue in self.queues()] + list(self._faded.items())
        parts = [
            (self._part(past), name, past)
            for name, past in known
            if past is not None and max(past, default=0.0) >= FADED
        ]
        parts.sort(key=lambda part: (-part[0], part[1]))
        return PastUsage(self._remembered_at, self.tree.resources, {name: tuple(past) for _, name, past in parts})

    def recall(self, past: PastUsage) -> None:
        """Take over what was remembered elsewhere: by an earlier replica, another leader, or for earlier queues.

        Of what is known here and what was recalled and has faded since, with the pods that have run since, the larger
        counts: each of them can only lack usage. So it does not matter how often or in which order this is called.
        Queues that no longer exist, and resources that none of the queues names, are left out.
        """
        half_life, now = self.tree.half_life_seconds, self._remembered_at
        if half_life is None or now is None:
            self._recalled.append(past)
            return
        left = past.faded_to(now, half_life, self.tree.resources)
        self._raise(left, self._of_running(now, half_life, since=past.at))
        by_key = {spec.name for spec in self.tree.queues if spec.key is not None}
        for name in [name for name in left if name.partition("/")[0] in by_key][:MOST_FADED]:
            known = self._faded.pop(name, None)
            self._faded[name] = left[name] if known is None else list(map(max, known, left[name]))
        self._forget_smallest()
        self.changed.note_all()

    def pasts(self) -> list[PastUsage]:
        """Return what later queues recall: what is remembered, or is to be recalled when the memory begins."""
        past = self.past_usage()
        return [past] if past is not None else list(self._recalled)

    def _raise(self, left: dict[str, list[float]], running: Mapping[Quota, list[float]]) -> None:
        """Raise what is remembered to what is left of a past, with the usage since; takes the queues from `left`."""
        zeros = [0.0] * self._size
        for queue in self.queues():
            rest, since = left.pop(queue.name, zeros), running.get(queue, zeros)
            past = [was + more for was, more in zip(rest, since, strict=True)]
            queue.remembered = list(map(max, queue.remembered, past)) if queue.remembered is not None else past

    def _of_running(self, now: Steady, half_life: float, *, since: float) -> Mapping[Quota, list[float]]:
        """Return what the pods that run have used since a time, with those of all queues below."""
        total: dict[Quota, list[float]] = {}
        ahead = self._ahead()
        for queue in self.queues():
            own = [0.0] * self._size
            for pod in queue.members.values():
                if pod.started is not None:
                    part = 1.0 - math.pow(0.5, max(0.0, now - max(pod.started - ahead, since)) / half_life)
                    for resource, amount in self.amounts(pod):
                        own[resource] += part * amount
            for above in queue.path() if any(own) else ():
                known = total.get(above)
                total[above] = [was + more for was, more in zip(known, own, strict=True)] if known is not None else own
        return total

    def count(self, pods: Iterable[PodInfo]) -> Mapping[str, int]:
        """Return how many of some pods belong to each queue, or to one below it."""
        counts: Counter[str] = Counter()
        for queue, number in Counter(self.quota_of(pod.template) for pod in pods).items():
            for each in queue.path() if queue is not None else ():
                counts[each.name] += number
        return counts

    # --- people ------------------------------------------------------------------------------------------

    def states(self) -> list[QuotaState]:
        """Return all queues, parents before their children."""
        return [self.state(queue) for queue in self.queues()]

    def state(self, queue: Quota) -> QuotaState:
        """Return one queue, to be shown."""
        names = self.tree.resources
        pods, stack = 0, [queue]
        while stack:
            each = stack.pop()
            pods += len(each.members)
            stack.extend(each.children.values())
        above = queue.parent
        return QuotaState(
            queue.name,
            above.name if above is not None and above.parent is not None else None,
            queue.depth,
            {name: amount for name, amount in zip(names, queue.minimum, strict=True) if amount},
            {name: amount for name, amount in zip(names, queue.maximum, strict=True) if amount != NO_LIMIT},
            {name: amount - kept for name, amount, kept in zip(names, queue.minimum, queue.kept, strict=True) if kept},
            dict(zip(names, queue.used, strict=True)),
            {name: queue.over(r) for r, name in enumerate(names) if queue.over(r) > 0},
            self.share(queue),
            queue.weight,
            pods,
            dict(zip(names, queue.remembered, strict=True)) if queue.remembered is not None else {},
            {name: queue.will(r) for r, name in enumerate(names)},
        )

    def miscounted(self, pods: Iterable[PodInfo]) -> list[str]:
        """Return the queues whose numbers differ from a recount; empty unless there is a bug."""
        counted = QuotaUsage(self.tree, self._nodes, pods, node_of=self._node_of, claims=self._claims)
        counted.evicted(self._evicted, {uid: pod for uid, (_, pod) in self._leaving.items()}.get)
        for _, _, pod in self._nominated.values():
            counted.nominate(pod)
        fresh = {queue.name: queue for queue in counted.queues()}
        found = []
        for queue in self.queues():
            right = fresh.pop(queue.name, None)
            if right is None:
                found.append(f"queue {queue.name} has no pods and is known")
            elif (right.used, right.charged, right.members.keys()) != (queue.used, queue.charged, queue.members.keys()):
                found.append(f"queue {queue.name} is said to use {queue.used}, and uses {right.used}")
            elif any(right.members[uid] is not pod for uid, pod in queue.members.items()):
                found.append(f"queue {queue.name} knows pods as they were")
            elif (right.leaving, right.nominated) != (queue.leaving, queue.nominated):
                found.append(f"queue {queue.name} is said to lose {queue.leaving}, and loses {right.leaving}")
        for place, name in enumerate(self.tree.resources):
            if self.usable(place) != counted.usable(place):
                found.append(f"of {name}, {self.usable(place)} are said to be usable, and {counted.usable(place)} are")
        return found + [f"queue {name} is not known" for name in fresh]


class _AwaitedClaim(msgspec.Struct, eq=False):
    """What a claim of awaited pods counts for."""

    at: tuple[int, str | None]
    """The queue of the first of these pods."""
    amounts: Amounts
    uses: int = 0
    is_own: bool = False
    """Whether each use is a claim of its own: the pod stands for others like it."""


class AwaitedPods(PodCounters):
    """Pods that new nodes are wanted for, counted by queue, too."""

    def __init__(self) -> None:
        super().__init__()
        self._usage: QuotaUsage | None = None
        self._amounts: dict[tuple[int, str | None], Counter[int]] = {}
        self._pods: dict[str, tuple[PodInfo, int]] = {}
        """By uid, with how many they stand for."""
        self._claims: dict[str, _AwaitedClaim] = {}
        """By `namespace/name`."""
        self._templates_asked: WeakSet[PodTemplate] = WeakSet()

    def place(self, pod: PodInfo, row: int) -> None:
        """Count a pod."""
        super().place(pod, row)
        self._templates_asked.add(pod.template)
        _, number = self._pods.get(pod.uid, (pod, 0))
        self._pods[pod.uid] = pod, number + 1
        self._tally(pod, 1)

    def displace(self, pod: PodInfo, row: int) -> None:
        """Count a pod no longer."""
        super().displace(pod, row)
        before, number = self._pods.pop(pod.uid)
        if number > 1:
            self._pods[pod.uid] = before, number - 1
        self._tally(before, -1)
        self.in_use.let_go()

    def reading(self, facts: OwnFacts, placed: Placed = ()) -> PodCounters:
        """Return the counters of sets of pods that follow from what these pods say of themselves, too."""
        return super().reading(facts, [(0, [pod for pod, number in self._pods.values() for _ in range(number)])])

    def end(self) -> None:
        """Leave nothing of this in templates, which outlive it, and let go of what others keep."""
        self.forget(self._templates_asked)
        self._usage = None

    def by_queue(self, usage: QuotaUsage) -> list[tuple[Quota, Amounts]]:
        """Return what they request together, by queue; costs as much as there are queues with such pods."""
        if self._usage is not usage:
            self._usage = usage
            self._amounts.clear()
            self._claims.clear()
            for pod, number in self._pods.values():
                self._tally(pod, number)
        return [(usage.queue_at(*at), tuple(amounts.items())) for at, amounts in self._amounts.items()]

    def _tally(self, pod: PodInfo, pods: int) -> None:
        usage = self._usage
        at = usage.tree.find(pod.template) if usage is not None else None
        if usage is None or at is None:
            return
        self._add(at, usage.tree.amounts(pod), pods)
        for key, is_own in usage.claims_of(pod):
            known = self._claims.get(key)
            if known is None:
                known = self._claims[key] = _AwaitedClaim(at, usage.claimed(key), is_own=is_own)
            before, known.uses = known.uses, known.uses + pods
            self._add(known.at, known.amounts, pods if known.is_own else bool(known.uses) - bool(before))
            if not known.uses:
                del self._claims[key]

    def _add(self, at: tuple[int, str | None], counted: Amounts, times: int) -> None:
        amounts = self._amounts.setdefault(at, Counter())
        for resource, amount in counted:
            amounts[resource] += times * amount
            if not amounts[resource]:
                del amounts[resource]
        if not amounts:
            del self._amounts[at]


class UsageToCome:
    """Usage of the queues of policies that are about to be used: counted in steps, while the cluster changes."""

    def __init__(self, usage: QuotaUsage) -> None:
        """usage: without pods."""
        self.usage = usage
        self.is_ready = False
        """Whether all pods are counted."""

    def steps(self, pods: Mapping[str, PodInfo]) -> Iterator[None]:
        """Count pods by uid; the mapping may change between two steps."""
        uids = list(pods)
        for start in range(0, len(uids), COUNTED_AT_ONCE):
            some = (pods.get(uid) for uid in uids[start : start + COUNTED_AT_ONCE])
            self.usage.place_many([pod for pod in some if pod is not None and not self.usage.counts(pod)])
            yield
        self.is_ready = True

    def place(self, pod: PodInfo, node_name: str = "") -> None:
        """Count a pod that is placed."""
        self.usage.place(pod, node_name)

    def displace(self, pod: PodInfo, node_name: str = "") -> None:
        """Count a pod no longer, if it was counted."""
        if self.usage.counts(pod):
            self.usage.displace(pod, node_name)

    def evicted(self, uids: Iterable[str], pod_of: Callable[[str], PodInfo | None]) -> None:
        """Count pods as leaving."""
        self.usage.evicted(uids, pod_of)

    def not_evicted(self, uids: Iterable[str]) -> None:
        """Count pods as staying."""
        self.usage.not_evicted(uids)

    def nominate(self, pod: PodInfo) -> None:
        """Count a nominated pod."""
        self.usage.nominate(pod)

    def end_nomination(self, uid: str) -> None:
        """Count it as nominated no longer."""
        self.usage.end_nomination(uid)

    def update(self, pod: PodInfo) -> None:
        """Take over a pod, if it was counted."""
        if self.usage.counts(pod):
            self.usage.update(pod)

    def nodes_changed(self, names: Iterable[str], pods_on: Callable[[str], Iterable[PodInfo]]) -> None:
        """Take over the state of nodes."""
        self.usage.nodes_changed(names, pods_on)

    def claim_changed(self, key: str) -> None:
        """Count a claim again, if it was counted before."""
        self.usage.claim_changed(key)


def _common_levels(tree: QuotaTree) -> int:
    """Return on how many levels from the top there is a single queue that is not one of several by key."""
    levels, parent = 0, None
    while True:
        there = [place for place, spec in enumerate(tree.queues) if spec.parent == parent]
        if len(there) != 1 or tree.queues[there[0]].key is not None:
            return levels
        levels, parent = levels + 1, there[0]
