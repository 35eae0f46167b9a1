"""What is known of gangs: one record each, in one table; when one that does not fit is planned again.

To plan a gang is to decide all of its members. So it is not planned again while nothing has changed, and after a plan
that failed it pauses for twenty times as long as that took, and others that failed too for five times as long: however
large gangs are, and however many, plans that fail take a sixth of the time at most. A gang that has not failed yet
waits for nobody.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count

import msgspec

from kube_policy_scheduler.framework.decide.gang_domains import Domain, Shortfall, Where
from kube_policy_scheduler.framework.frame import DeviceOrder
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.queue.queued_groups import GroupTable, QueuedGroup
from kube_policy_scheduler.times import Steady

PAUSE_FACTOR = 20.0
OTHERS_FACTOR = 5.0
MOST_PAUSE_SECONDS = 60.0
MOST_DOUBLINGS = 4
"""The pause doubles with every further plan that fails, so often."""
KEPT_WITHOUT_PODS = 1000
"""Gangs without pending pods of which it is kept what happened to them: those that come again soon."""


class Loss(msgspec.Struct):
    """Pods that a gang that runs has lost, so that it has fewer than it needs; see `groups.short_gangs`."""

    requirement: GangRequirement
    due: float
    """When the rest is to be evicted."""
    is_known: bool
    """Whether it is known of one of them that it had not done its work."""


class Plans(msgspec.Struct, eq=False):
    """What came of the plans of a gang so far."""

    shortfall: Shortfall | None = None
    """Why the last one failed; None: it did not, or there was none."""
    awaits_victims: bool = False
    """Whether pods that it evicted were still there at the last attempt."""
    state: Hashable = None
    """Of everything, when it was planned last and did not fit."""
    spent: float = 0.0
    """Seconds that the plan under way has taken so far."""
    planned_again_at: float = 0.0
    failures: int = 0
    under_way: object = None
    """The plan that goes on in another turn, see `groups.plan`; None: there is none."""
    restarts: int = 0
    """How often changes set it back."""
    entitled_since: Steady | None = None
    """Since when the queues of its members could guarantee it, and it was rejected; None: that has not been."""
    reclaims_again_at: float = 0.0
    """Until then no pods of other queues are evicted for it, because an attempt found nobody."""
    reclaim_waits: Hashable = None
    """The state in which `reclaim` last found that terminating pods will make enough room; None: it found otherwise."""
    wanted_at: float | None = None
    """When it is to be planned again though no event says so; None: never."""


class GangRecord(QueuedGroup, eq=False):
    """What is known of one gang: its pending pods, its plans, and its pods that wait or are lost."""

    touched: int = 0
    """Grows with the time of the last use; 0: only its pods are known."""
    where: Where | None = None
    """On which nodes its members are decided; None: that is not settled."""
    device_order: DeviceOrder | None = None
    """In which its members get devices; None: in that of their policy."""
    plans: Plans = msgspec.field(default_factory=Plans)
    holding: int = 0
    """Its members that are assumed, and wait for others of their plan."""
    held_since: float = 0.0
    """When the first of them was."""
    loss: Loss | None = None
    """Pods that it lost; None: it has as many as it needs, or none at all."""

    @property
    def is_used(self) -> bool:
        """Return whether anything is known of it but its pods."""
        return self.touched > 0


class GangTable(GroupTable[GangRecord]):
    """The records of gangs; those of gangs without pending pods are dropped in the end."""

    def __init__(self) -> None:
        super().__init__(GangRecord)
        self.pauses = True
        """Whether gangs pause after a plan that failed."""
        self._wanted: list[tuple[float, int, Group]] = []
        """A heap; an entry is stale where its gang is wanted at another time, or not at all."""
        self._numbers = count(1)
        self._free_at = 0.0
        """Until when no gang is planned that failed before."""
        self._clean_at = 2 * KEPT_WITHOUT_PODS

    def of(self, group: Group) -> GangRecord:
        """Return the record of a gang, which is made if there is none."""
        record = self._records.get(group)
        if record is None:
            if len(self._records) >= self._clean_at:
                self._clean()
            record = self._records[group] = GangRecord(group)
        record.touched = next(self._numbers)
        return record

    def forget(self, group: Group) -> None:
        """Forget what happened to a gang that has started, but for where it is."""
        record = self._records.get(group)
        if record is not None:
            record.plans, record.device_order, record.loss = Plans(), None, None
            self._let_go(record)

    def forget_rules(self) -> None:
        """Forget where and how gangs are decided, and what came of it: the rules have changed."""
        for record in list(self):
            record.plans = Plans()  # a plan that is under way ends with that, and takes its own rules back
            record.where, record.device_order = None, None
            self._let_go(record)
        self._wanted.clear()

    def _let_go(self, record: GangRecord) -> None:
        """Drop a record if nothing is known of the gang, or only its pods."""
        if record.where is None and record.loss is None and not record.holding:
            record.touched = 0
            if not record.pods:
                del self._records[record.group]

    def holding(self, group: Group) -> tuple[int, float | None]:
        """Return how many members of a gang are assumed and wait for others, and since when; None if there are none."""
        record = self._records.get(group)
        return (record.holding, record.held_since) if record is not None and record.holding else (0, None)

    # --- where and how members are decided -----------------------------------------------------------

    def where(self, group: Group) -> Where | None:
        """Return on which nodes members of a gang are decided; None: that is not settled."""
        record = self._records.get(group)
        return record.where if record is not None else None

    def domain(self, group: Group) -> Domain | None:
        """Return the domain on whose nodes members of a gang are decided; None: on any."""
        where = self.where(group)
        return where if isinstance(where, Domain) else None

    def settle(self, group: Group, where: Where | None) -> None:
        """Decide members of a gang there from now on; None: that is not settled any more."""
        record = self.of(group) if where is not None else self.get(group)
        if record is not None:
            record.where = where

    def order_devices(self, group: Group, order: DeviceOrder | None) -> None:
        """Give members of a gang devices in an order from now on; None: in that of their policy."""
        record = self.of(group) if order is not None else self.get(group)
        if record is not None:
            record.device_order = order

    # --- plans ---------------------------------------------------------------------------------------

    def may_plan(self, record: GangRecord, state: Hashable, now: Steady) -> bool:
        """Return whether a gang may be planned now; if it must pause first, `due` names it afterwards.

        state: of all that a plan may depend on.
        """
        plans = record.plans
        if plans.state == state:
            return False
        again_at = max(self._free_at, plans.planned_again_at) if plans.failures else 0.0
        if again_at > now:
            self.want(record, again_at)
            return False
        return True

    def went_on(self, record: GangRecord, *, seconds: float) -> None:
        """Note that a plan, which is not at its end, took so many seconds more."""
        record.plans.spent += seconds

    def failed(self, record: GangRecord, state: Hashable, now: Steady, *, seconds: float) -> None:
        """Note that a gang was planned, at the end for so many seconds, and does not fit."""
        end, plans = now + seconds, record.plans
        seconds, plans.spent = seconds + plans.spent, 0.0
        plans.state = state
        if not self.pauses:
            return
        pause = seconds * PAUSE_FACTOR * 2.0 ** min(plans.failures, MOST_DOUBLINGS)
        plans.planned_again_at = end + min(pause, MOST_PAUSE_SECONDS)
        plans.failures += 1
        self._free_at = end + min(seconds * OTHERS_FACTOR, MOST_PAUSE_SECONDS)

    def succeeded(self, record: GangRecord) -> None:
        """Note that a gang fits, or may fit now: what failed before says nothing any more."""
        before = record.plans
        record.plans = Plans(
            awaits_victims=before.awaits_victims,
            under_way=before.under_way,
            restarts=before.restarts,
            entitled_since=before.entitled_since,
            reclaims_again_at=before.reclaims_again_at,
            reclaim_waits=before.reclaim_waits,
        )

    # --- time ----------------------------------------------------------------------------------------

    def want(self, record: GangRecord, at: float) -> None:
        """Have `due` name a gang at a time, if it is not named earlier."""
        if record.plans.wanted_at is None or at < record.plans.wanted_at:
            record.plans.wanted_at = at
            heapq.heappush(self._wanted, (at, next(self._numbers), record.group))

    def due(self, now: Steady) -> Group | None:
        """Return a gang that is to be planned again now, once for each time that it is wanted; None: there is none."""
        at = self.next_due()
        if at is None or at > now:
            return None
        group = heapq.heappop(self._wanted)[2]
        self._records[group].plans.wanted_at = None
        return group

    def next_due(self) -> float | None:
        """Return when the next gang is to be planned again."""
        heap = self._wanted
        while heap and not self._is_wanted(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _is_wanted(self, entry: tuple[float, int, Group]) -> bool:
        record = self._records.get(entry[2])
        return record is not None and record.plans.wanted_at == entry[0]

    def _clean(self) -> None:
        idle = [
            record
            for record in self
            if not record.pods and record.plans.under_way is None and record.loss is None and not record.holding
        ]
        idle.sort(key=lambda record: record.touched)
        for record in idle[:-KEPT_WITHOUT_PODS]:
            del self._records[record.group]
        self._clean_at = 2 * len(self._records) + KEPT_WITHOUT_PODS
