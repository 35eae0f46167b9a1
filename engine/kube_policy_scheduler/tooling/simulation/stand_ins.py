"""Pods that are rejected alike wait behind the first of them, which is tried for all.

Many pods that fit nowhere would each be tried at each event, which makes pods times events. Those that get the same
decision at one moment need one trial: once the first has a node, the next one is tried. Alike are pods of one template,
and pods and whole gangs that request the same and lack nothing but room: before the first of these is
tried, only the nodes that changed are checked. Pods of which that is not certain wait on their own: members of gangs of
which some have a place, pods with volumes or claims or a nomination, and those whose rules read the pod itself or the
clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.device_classes import class_by_resource
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaUsage
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.rejection_memo import is_alike
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.groups.members import GangMembers
from kube_policy_scheduler.framework.kernels.changed_rows import ChangedRows
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.preempt.reclaim import NotReclaimed, may_gain
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, QueuePosition, SchedulingQueue
from kube_policy_scheduler.framework.quota import QUOTA, RECLAIM
from kube_policy_scheduler.times import Steady

_BEHIND = frozenset(("behind a pod that is rejected alike",))
_NO_ROOM = frozenset(("no room on any node",))
_CALLED = ClusterEvent.TIMEOUT
"""What wakes a pod that waits behind another one, by name; in virtual time no such event reaches all pods."""
_ONLY_CALLED = {name: frozenset((_CALLED,)) for name in (*_BEHIND, *_NO_ROOM)}
_LACKS_ROOM = frozenset((NodeResourcesFit.name,))
_LACKS_QUOTA = frozenset((QUOTA,))
_FEW_ROWS = 16
"""Up to this many rows are looked up one by one."""


class _Request(NamedTuple):
    """What pods, or gangs without any place, are alike in that lack nothing but room, or quota."""

    profile: Profile
    line: str
    """Of the order: pods of two lines are not compared by key."""
    queue: str | None
    amounts: tuple[tuple[str, int], ...]
    """Of one pod, in column units."""
    priority: int
    preemption_policy: str | None
    gang: int
    """The size; 0: no gang."""
    group: Group | None
    """Of a gang of which some members have a place: it is like no other; else None."""
    lacks: frozenset[str]


_Kind: TypeAlias = tuple[PodTemplate, Profile] | _Request


class _Line(msgspec.Struct):
    """Pods that are alike."""

    first: QueuedPod
    rejectors: frozenset[str]
    """Of the first."""
    share: tuple[QuotaUsage, Quota, Amounts] | None = None
    """What the first asks its queue for; None: it has none, or nobody is evicted for it."""
    open: set[int] = msgspec.field(default_factory=set)
    """Rows that had room for the first since it was rejected."""
    is_due: bool = False
    """Whether something else than room may help the first since it was rejected."""
    behind: list[tuple[Any, int, QueuedPod]] = msgspec.field(default_factory=list)
    """A heap in the order of the queue. An entry is stale if the pod does not wait behind any more."""


class StandIns:
    """Puts rejected pods back into the queue."""

    def __init__(
        self,
        queue: SchedulingQueue,
        position: Callable[[QueuedPod], QueuePosition],
        cluster: Cluster,
        *,
        members: GangMembers,
        each_reason: bool,
    ) -> None:
        """Make one.

        Args:
            queue: of the pods.
            position: returns the position of a pod.
            cluster: where they are placed.
            members: who is in gangs.
            each_reason: whether each pod must be tried again when the reason why it does not fit has changed.
        """
        self._queue, self._position, self._cluster, self._each_reason = queue, position, cluster, each_reason
        self._members = members
        self._lines: dict[_Kind, _Line] = {}
        self._line_of: dict[str, _Kind] = {}
        """By the uid of those that are tried for others."""
        self._behind: dict[str, int] = {}
        """By the uid of those that wait behind others, the number of their entry."""
        self._numbers = count()
        self._helped: dict[_Request, _Line] = {}
        """Those whose first one is to be tried when its turn comes."""
        self._called: set[str] = set()
        """By uid, the first ones whose turn it is."""
        self._changed = ChangedRows(cluster.nodes, cluster.nodes.static_changes, cluster.nodes.dynamic_changes)
        self._nominated: frozenset[str] = frozenset()
        """Nodes on which room was kept when it was looked last."""

    def rejected(
        self,
        queued: QueuedPod,
        requirements: Sequence[GangRequirement],
        profile: Profile,
        decision: Decision,
        now: Steady,
    ) -> None:
        """Put a rejected pod back: it waits for an event, or behind one that is rejected alike."""
        rejectors, wakes, uid = decision.rejectors, profile.wakes, queued.pod.uid
        kind = self._kind(queued, requirements, profile, decision)
        if kind is None or self._line_of.get(uid, kind) != kind:
            self.settled(queued, now)
        self._behind.pop(uid, None)
        if kind is None:
            self._queue.rejected(queued, rejectors, now, wakes=wakes)
            return
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(queued, rejectors)
            self._line_of[uid] = kind
        if line.first is queued:
            if isinstance(kind, _Request) and kind.lacks is _LACKS_ROOM:
                self._asks_for(line, requirements, profile)
                self._queue.rejected(queued, _NO_ROOM, now, wakes=_ONLY_CALLED)
            else:
                self._queue.rejected(queued, rejectors, now, wakes=wakes)
            self._keeps_its_turn(queued)
            if self._each_reason and line.rejectors != rejectors:
                behind, line.behind = line.behind, []
                for _, _, other in sorted(behind, key=lambda entry: entry[:2]):
                    self._queue.wake(other.pod.uid, _CALLED, now)
            line.rejectors = rejectors
            self._tried(uid, now)
            return
        self._queue.rejected(queued, _BEHIND, now, wakes=_ONLY_CALLED)
        self._keeps_its_turn(queued)
        self._behind[uid] = number = next(self._numbers)
        heapq.heappush(line.behind, (self._position(queued).key, number, queued))

    def _asks_for(self, line: _Line, requirements: Sequence[GangRequirement], profile: Profile) -> None:
        """Note what the first of a line was rejected for just now."""
        line.open.clear()
        line.is_due = False
        if profile.queues is not None and profile.queues.reclaims:
            usage = self._cluster.track_usage(profile.queues.tree)
            queue = usage.quota_of(line.first.pod.template)
            amounts = self._members.quota_request(line.first, requirements, usage)
            line.share = (usage, queue, amounts) if queue is not None else None

    def settled(self, queued: QueuedPod, now: Steady) -> None:
        """Note that a pod is tried for no other one any more: it has a node, or is nominated to one."""
        uid = queued.pod.uid
        self._behind.pop(uid, None)
        kind = self._line_of.pop(uid, None)
        if kind is not None:
            line = self._lines.pop(kind)
            while line.behind:
                _, number, other = heapq.heappop(line.behind)
                if self._behind.get(other.pod.uid) == number and other.place is Place.UNSCHEDULABLE:
                    self._promote(kind, line, other, now)
                    break
            else:
                if isinstance(kind, _Request):
                    self._helped.pop(kind, None)
        self._tried(uid, now)

    def _promote(self, kind: _Kind, line: _Line, queued: QueuedPod, now: Steady) -> None:
        """Try a pod for those of its line from now on."""
        uid = queued.pod.uid
        del self._behind[uid]
        line.first = queued
        self._lines[kind] = line
        self._line_of[uid] = kind
        if isinstance(kind, _Request) and kind.lacks is _LACKS_ROOM:
            line.is_due = line.is_due or self._may_evict(kind, line)
            self._helped[kind] = line
        else:
            self._queue.wake(uid, _CALLED, now)

    def _tried(self, uid: str, now: Steady) -> None:
        """Call the next one if a pod was called."""
        if uid in self._called:
            self._called.remove(uid)
            self._call(now)

    def began(self, siblings: Iterable[QueuedPod], now: Steady) -> None:
        """Have the members of a gang tried on their own, of which one has a place now."""
        for queued in siblings:
            if queued.pod.uid in self._behind:
                del self._behind[queued.pod.uid]
                self._queue.wake(queued.pod.uid, _CALLED, now)

    def room_changed(self, now: Steady) -> None:
        """Try the first ones again for which there may be room now, on nodes that changed since the last call."""
        cluster, taken = self._cluster, self._changed.take()
        nominated = self._nominated.union(cluster.nominated)
        self._nominated = frozenset(cluster.nominated)
        rows = range(cluster.nodes.size) if taken is None or isinstance(taken, slice) else taken
        if nominated:
            rows = [*rows, *(cluster.nodes.rows[name] for name in nominated if name in cluster.nodes.rows)]
        for kind, line in self._lines.items():
            if isinstance(kind, _Request) and kind.lacks is _LACKS_ROOM:
                found = self._with_room(kind, rows)
                line.open.update(found)
                line.is_due = line.is_due or self._may_evict(kind, line)
                if found or line.is_due:
                    self._helped[kind] = line
        self._call(now)

    def _call(self, now: Steady) -> None:
        """Have those tried whose turn it is, of the first ones that may be helped: one of each line of the order."""
        best: dict[str, tuple[Any, int, _Request]] = {}
        for kind, line in list(self._helped.items()):
            if line.first.place is not Place.UNSCHEDULABLE or not (line.is_due or self._with_room(kind, line.open)):
                del self._helped[kind]
                continue
            position = self._position(line.first)
            entry = _rank(position, line.first), line.first.ticket, kind
            if position.line not in best or entry[:2] < best[position.line][:2]:
                best[position.line] = entry
        for _, _, kind in best.values():
            uid = self._helped.pop(kind).first.pod.uid
            self._called.add(uid)
            self._queue.wake(uid, _CALLED, now)

    def _with_room(self, kind: _Request, rows: Collection[int]) -> list[int]:
        """Return the rows that have what one pod requests, whatever else rejects it."""
        nodes, found = self._cluster.nodes, rows
        for name, amount in kind.amounts:
            offered, held = nodes.allocatable(name), nodes.requested(name)
            if len(found) > _FEW_ROWS:
                some = np.fromiter(found, np.intp, len(found))
                found = some[offered[some] - held[some] >= amount].tolist()
            else:
                found = [row for row in found if row < len(offered) and offered.item(row) - held.item(row) >= amount]
        return list(found)

    def _may_evict(self, kind: _Request, line: _Line) -> bool:
        """Return whether the first of a line may make room, or get that of a gang that gives way."""
        if self._cluster.priorities.has_below(kind.priority):
            return True
        rules = kind.profile.queues
        if line.share is None or rules is None:
            return False
        usage, queue, amounts = line.share
        return any(may_gain(usage, queue, amounts, rule) for rule in rules.reclaims)

    def first_of(self, queued: QueuedPod) -> QueuedPod:
        """Return the pod behind which one waits; itself if it waits behind none."""
        number = self._behind.get(queued.pod.uid)
        if number is None:
            return queued
        found = (line.first for line in self._lines.values() if any(entry[1] == number for entry in line.behind))
        return next(found, queued)

    def _kind(
        self, queued: QueuedPod, requirements: Sequence[GangRequirement], profile: Profile, decision: Decision
    ) -> _Kind | None:
        """Return what a rejected pod is alike in with others; None: it waits alone."""
        found, pod = decision.preemption, queued.pod
        lacks_quota = bool(requirements) and decision.rejected_by == _LACKS_QUOTA
        if not is_alike(pod, profile) or (decision.rejected_by - {RECLAIM} - _LACKS_ROOM and not lacks_quota):
            return None
        if decision.reclaim is not None and decision.reclaim.why is NotReclaimed.PATIENCE:
            return None  # how long it has waited is its own
        if found is not None and (found.victims or found.nominated_node or found.keeps_nomination):
            return None
        if any(ClusterEvent.CLOCK in profile.wakes.get(name, ()) for name in decision.rejectors - {RECLAIM}):
            return None
        position = self._position(queued)
        if position.strict or position.slopes or position.backfill is not None:
            return None
        if requirements and not (len(requirements) == 1 and self._members.are_alike(queued, requirements[0])):
            return None
        began = bool(requirements) and self._members.have_begun(requirements[0])
        lacks = _LACKS_QUOTA if lacks_quota else _LACKS_ROOM
        if lacks_quota or (decision.rejectors == _LACKS_ROOM and profile.preemption is None):
            template, ignored = pod.template, self._cluster.ignored_resources
            usage = self._cluster.track_usage(profile.queues.tree) if profile.queues is not None else None
            of = usage.quota_of(template) if usage is not None else None
            wanted = (each for each in template.requests.items() if each[0] != "pods" and each[0] not in ignored)
            request = _Request(
                profile,
                position.line,
                of.name if of is not None else None,
                tuple(sorted(wanted)),
                pod.priority,
                template.spec.preemption_policy,
                requirements[0].size if requirements else 0,
                requirements[0].group if began else None,
                lacks,
            )
            # of a gang, one member may fit: it is tried again where there is more room than when it was rejected
            if requirements or request in self._lines or not self._may_fit_somewhere(request):
                return request
        return (pod.template, profile) if not queued.groups else None

    def _may_fit_somewhere(self, request: _Request) -> bool:
        """Return whether columns alone do not tell that there is no room: nodes kept for others, devices of classes."""
        return bool(class_by_resource(self._cluster.store)) or bool(
            self._with_room(request, range(self._cluster.nodes.size))
        )

    def _keeps_its_turn(self, queued: QueuedPod) -> None:
        """Let a pod wait as one that has not been tried: among equals, who came first is tried first."""
        queued.timestamp, queued.rejections = queued.queued, 0


def _rank(position: QueuePosition, queued: QueuedPod) -> Any:
    """Return what orders the pods of one line, with the shares as they are now."""
    fair = position.fair
    if fair is None:
        return position.key
    parts = list(position.key[0])
    parts[fair.place] = ()
    if fair.queue is not None:
        parts[fair.place] = fair.usage.order(fair.queue, fair.usage.asks(queued.pod))[fair.usage.common_levels :]
    return (tuple(parts), *position.key[1:])
