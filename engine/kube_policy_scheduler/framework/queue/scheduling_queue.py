"""The scheduling queue: active, backoff, unschedulable, gated and waiting pods. Pure; the time is an argument.

Every pending pod is in exactly one place. A pod that is being decided or bound is in flight: it is in none of the
places, and the queue records the events that arrive meanwhile, so that the pod misses none.
The rules are those of the scheduling queue of kube-scheduler 1.36 (order, backoff, flush). Each place with its own
rules is a module beside this one; this module moves pods between the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count, islice
from operator import attrgetter
from typing import assert_never

from kube_policy_scheduler.cluster.ledger import Ledger
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.templates_in_use import TemplatesInUse
from kube_policy_scheduler.framework.events import ALWAYS, ClusterEvent, wake_events
from kube_policy_scheduler.framework.gangs import Group, NumberOf
from kube_policy_scheduler.framework.queue.active_queue import ActiveQueue
from kube_policy_scheduler.framework.queue.backfill_rule import BackfillRule
from kube_policy_scheduler.framework.queue.backoff_queue import BackoffQueue, backoff_end
from kube_policy_scheduler.framework.queue.long_turns import LongTurns
from kube_policy_scheduler.framework.queue.pod_transitions import move
from kube_policy_scheduler.framework.queue.pods_over_quota import FREE_QUOTA, PodsOverQuota, QuotaWait
from kube_policy_scheduler.framework.queue.queued_groups import NO_GROUPS, GroupTable, Membership, QueuedGroup
from kube_policy_scheduler.framework.queue.queued_pod import (
    Place,
    PodState,
    QueuedPod,
    QueuePosition,
    gates,
    last_position,
    priority_position,
    priority_sort,
)
from kube_policy_scheduler.times import Steady

__all__ = [
    "NO_GROUPS",
    "Membership",
    "Place",
    "QueuePosition",
    "QueuedPod",
    "SchedulingQueue",
    "gates",
    "priority_position",
    "priority_sort",
]

UNSCHEDULABLE_TIMEOUT_SECONDS = 300.0
"""A rejected pod is retried after this time even without an event."""

ASKED_AT_ONCE = 64
"""Gated pods that are checked in one step, if a group releases very many: about 2 ms."""

ORDERED_AT_ONCE = 500
"""Pods that are sorted again in one step, because time has passed: about 3 ms."""

COUNTED_AT_ONCE = 500
"""Pods that are counted in one step: about 0.3 ms."""

MOVED_AT_ONCE = 64
"""Pods that are moved in one step, because of an event or as their backoff has ended: about 1 ms. After new rules with
queues, sorting them again takes 5 to 10."""

Standing = tuple[str, frozenset[str], str]
"""The place of a pod, what rejected it last, and its schedulerName."""
_PLACE = attrgetter("place._value_")  # a string: hashing a member of an enum calls Python
_STANDING: Callable[[QueuedPod], Standing] = attrgetter(
    "place._value_", "rejectors", "pod.template.spec.scheduler_name"
)

PositionOf = Callable[[QueuedPod], QueuePosition]
HoldReason = Callable[[QueuedPod], str | None]
"""PreEnqueue: why a pod is gated, or None."""
MembershipOf = Callable[[QueuedPod], Membership]
_READY = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE)


class SchedulingQueue:
    """All pending pods."""

    def __init__(self, *, position: PositionOf = priority_position, hold: HoldReason = gates) -> None:
        self._position = position
        self._hold = hold
        self._membership: MembershipOf = lambda queued: NO_GROUPS
        self._placed: NumberOf = lambda group_of, group: 0
        self._pods: dict[str, QueuedPod] = {}
        self._tickets = count(1)
        self._active = ActiveQueue(self._tickets)
        self._backoff = BackoffQueue(self._tickets)
        self._with_gates: dict[str, QueuedPod] = {}
        """By uid: pods with scheduling gates. Only an update of the pod can ungate them."""
        self._held_by_policy: dict[str, QueuedPod] = {}
        """By uid: pods that a policy holds. They are checked again at intervals."""
        self._ask_again: dict[str, QueuedPod] = {}
        """Gated pods to check again soon, because their group has changed."""
        self._unreported: dict[str, QueuedPod] = {}
        """Gated pods whose reason was not reported yet, without those with scheduling gates."""
        self._unschedulable = UnschedulablePods()
        self._groups: GroupTable[QueuedGroup] = GroupTable(QueuedGroup)
        """Pods that only the size of their group can gate, with those that it does."""
        self._ledger = Ledger()
        """Where an attempt that ends looks for events since it began."""
        self._long_turns = LongTurns()
        self._templates = TemplatesInUse()
        self._in_flight = 0
        self.keeps_histories = False
        """Whether the last states of each pod that comes from now on are kept."""
        self._sorting: Iterator[None] = iter(())
        """What is left to do after new rules."""
        self._is_sorted = True
        """Whether no pods are left that are not sorted by the rules in use."""

    def follow(self, ledger: Ledger, clock: Callable[[], Steady], *, moved: Callable[[], None] = lambda: None) -> None:
        """Move the rejected pods that an event of a cluster may help as soon as it is noted; set before the first pod.

        Args:
            ledger: of the cluster.
            clock: the time.
            moved: called when pods were moved, or are left to `move_some` because they are very many.
        """
        self._ledger = ledger

        def listen(event: ClusterEvent) -> None:
            if self._unschedulable.has_any and self._help(event, clock()):
                moved()

        ledger.follow(listen)

    def keep_groups_in(self, table: GroupTable[QueuedGroup]) -> None:
        """Keep the groups of pending pods in a table in which more is known of them; set before the first pod."""
        assert not self._pods, "no pod has joined a group yet"
        self._groups = table

    # --- reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def get(self, uid: str) -> QueuedPod | None:
        """Return a pending pod by uid."""
        return self._pods.get(uid)

    def gated(self) -> Iterator[QueuedPod]:
        """Return the gated pods."""
        return iter([*self._with_gates.values(), *self._held_by_policy.values(), *self._groups.gated])

    def held_by_policy(self) -> list[QueuedPod]:
        """Return the pods that a policy holds."""
        return list(self._held_by_policy.values())

    def groups_missing_members(self) -> list[Group]:
        """Return the groups that gate pods, because they are too small or do not exist."""
        return self._groups.with_gated()

    def newly_gated(self, *, since: float) -> list[QueuedPod]:
        """Return the gated pods that arrived at this time or before, without a call of `mark_reported` since.

        Not those that are gated again for a reported reason, unless nodes are kept for them.
        """
        return [queued for queued in self._unreported.values() if queued.queued <= since]

    def mark_reported(self, queued: QueuedPod) -> None:
        """Record that the reason why a pod is gated was reported."""
        queued.reported_reason = queued.gated_because
        self._unreported.pop(queued.pod.uid, None)

    def counts(self) -> dict[Place, int]:
        """Return how many pods are in each place."""
        counts = Counter(map(_PLACE, self._pods.values()))
        return {place: counts[place.value] for place in Place}

    def standings(self) -> Generator[None, None, Counter[Standing]]:
        """Return the number of pods in each place, counted in steps."""
        counts: Counter[Standing] = Counter()
        pods = iter(list(self._pods.values()))
        while chunk := list(islice(pods, COUNTED_AT_ONCE)):
            counts.update(map(_STANDING, chunk))
            yield
        return counts

    def has_active(self) -> bool:
        """Return whether an active pod can be popped, perhaps once `move_some` has no more work."""
        return bool(self._active) or not self._is_sorted

    def blocked(self) -> dict[str, QueuedPod]:
        """Return by uid the active pods that wait behind another one of their strict order, with that one."""
        return self._active.blocked()

    def first_before(self, queued: QueuedPod) -> tuple[str, QueuedPod, BackfillRule] | None:
        """Return the pod of its order that waits and that another one may pass if it does not delay it.

        With the name of the line, and the rule. None: there is none, it is the pod itself, or it comes after it.
        """
        if not self._active.backfills:
            return None
        position = self._position(queued)
        first = self._active.first_waiting(position) if position.backfill is not None else None
        if first is None or first is queued or position.backfill is None:
            return None
        return position.line, first, position.backfill

    def first_of(self, line: str) -> tuple[QueuedPod, BackfillRule] | None:
        """Return the first waiting pod of a line, with its `backfill`; None: no pod waits, or it has no `backfill`."""
        first = self._active.first_of(line) if self._active.backfills else None
        rule = self._position(first).backfill if first is not None else None
        return (first, rule) if first is not None and rule is not None else None

    def has_to_ask(self) -> bool:
        """Return whether `ask_again` has work."""
        return bool(self._ask_again)

    def is_letting_in(self, group: Group) -> bool:
        """Return whether members of a group are still to be checked again, so that not all of it can be decided yet."""
        return not self._ask_again.keys().isdisjoint(self._groups.members(group).keys())

    def group(self, group: Group) -> Mapping[str, QueuedPod]:
        """Return the pending pods of a group by uid, without those gated for a reason of their own."""
        return self._groups.members(group)

    def waits_for_members(self, queued: QueuedPod) -> bool:
        """Return whether a pod is gated until its group exists and is large enough."""
        return self._groups.is_gated(queued.pod.uid)

    def group_version(self, group: Group) -> int:
        """Return a number that is another one whenever other pods are in a group, or one of them has changed."""
        return self._groups.version(group)

    def without_place(self, group: Group) -> int:
        """Return how many members have no node; in constant time."""
        return self._groups.without_place(group)

    def misplaced(self) -> list[str]:
        """Return the pods that are not in the place that they record; empty unless there is a bug."""
        ready = self._active.tickets() | self._backoff.tickets()
        in_flight = sum(queued.place is Place.IN_FLIGHT for queued in self._pods.values())
        found = [f"{self._in_flight} pods are said to be in flight, and {in_flight} are"]
        found = found if in_flight != self._in_flight else []
        for uid, queued in self._pods.items():
            match queued.place:
                case Place.ACTIVE | Place.BACKOFF:
                    right = queued.ticket in ready or not self._is_sorted
                case Place.GATED:
                    where = uid in self._with_gates, uid in self._held_by_policy, self._groups.is_gated(uid)
                    right = sum(where) == 1
                case Place.UNSCHEDULABLE:
                    right = self._unschedulable.would_be_found(queued)
                case Place.IN_FLIGHT | Place.PERMIT:
                    right = True
                case _:
                    assert_never(queued.place)
            is_active = queued.place is Place.ACTIVE
            if not right or (self._is_sorted and self._active.has_slot(queued) != is_active):
                found.append(f"pod {queued.pod.key} says that it is {queued.place.value}, and is not there")
        waiting = {*(queued.pod.uid for queued in self.gated()), *self._unreported, *self._unschedulable.uids()}
        found += [f"pod {uid} waits and is not pending any more" for uid in sorted(waiting - self._pods.keys())]
        return found + self._groups.miscounted()

    def next_due(self) -> float | None:
        """Return when the next backoff ends; None if no pod is in backoff."""
        return self._backoff.next_due()

    # --- add, update and delete -----------------------------------------------------------------------

    def hold_templates(self, templates: TemplatesInUse) -> None:
        """Keep the templates of pending pods in use from now on."""
        if templates is self._templates:
            return
        self._templates = templates
        for queued in self._pods.values():
            templates.hold(queued.pod.template)

    def add(self, pod: PodInfo, now: Steady) -> None:
        """Add a pending pod, or update it."""
        known = self._pods.get(pod.uid)
        if known is None:
            history: list[PodState] | None = [] if self.keeps_histories else None
            queued = self._pods[pod.uid] = QueuedPod(
                pod, queued=now, timestamp=now, history=history, is_nomination_shown=bool(pod.nominated_node)
            )
            self._templates.hold(pod.template)
            self._enqueue(queued)
            self._let_in(queued)
            return
        before, known.pod, known.shown = known.pod, pod, None
        self._templates.hold(pod.template)
        self._templates.release(before.template)
        changed = (
            before.template is not pod.template
            or before.annotations != pod.annotations
            or before.claim_names != pod.claim_names
        )
        if changed:
            self._groups.changed(known)
        if changed and known.place in (Place.IN_FLIGHT, Place.PERMIT):
            known.missed = (*known.missed, ClusterEvent.OWN_UPDATE)
        if changed and known.place is Place.BACKOFF:
            self._regroup(known)
            self._keep_line(known)
        if known.place is Place.GATED or (changed and known.place in (Place.UNSCHEDULABLE, Place.ACTIVE)):
            self._leave(known)
            self._enqueue(known)
            self._let_in(known)

    def show(self, pod: PodInfo) -> None:
        """Note the state of an assumed pod in the API server: if its binding fails, the queue gets it back as this."""
        if (known := self._pods.get(pod.uid)) is not None:
            known.shown = pod

    def remove(self, uid: str) -> QueuedPod | None:
        """Delete a pod from the queue (deleted, or no longer served by this scheduler)."""
        return self._remove(uid, PodState.GONE)

    def _remove(self, uid: str, end: PodState) -> QueuedPod | None:
        queued = self._pods.pop(uid, None)
        if queued is not None:
            delays_others = self._delays_others(queued)
            self._leave(queued)
            self._active.unblock(uid)
            self._groups.quit(queued)
            queued.ticket = 0
            self._long_turns.ended(queued)
            if end is PodState.BOUND:
                self._long_turns.placed(queued)
            move(queued, end)
            self._templates.release(queued.pod.template)
            self._templates.let_go()
            if delays_others:  # last: it wakes pods, of which this is none any more
                self._ledger.note(ClusterEvent.RESERVATION)
        return queued

    # --- attempts ------------------------------------------------------------------------------------

    def pop(self, now: Steady) -> QueuedPod | None:
        """Pop the next pod; if none is active, the pod whose backoff ends first."""
        while (not self._is_sorted or self._unschedulable.number_helped) and self.move_some(now):
            pass
        self.flush(now)
        for _ in range(MOVED_AT_ONCE):
            queued = self._active.pop(now) or self._backoff.pop_early()
            if queued is None:
                return None
            if self._hold_back(queued):  # it may have waited for hours, behind the first pod of a strict order
                continue
            if queued.waits_last or not self._long_turns.waits_last(queued):
                self._begin(queued)
                return queued
            self._push_active(queued)  # it came before others of its template took too long
        return None

    def took_too_long(self, queued: QueuedPod, now: Steady) -> bool:
        """Note that a pod was being decided in a long turn; return whether it waits behind all others from now on.

        So it does after the second one, until it has a node or its specification changes; see `long_turns`.
        """
        self._long_turns.note(queued, now)
        return self._long_turns.waits_last(queued)

    def waiting_last(self) -> int:
        """Return how many pods wait behind all others."""
        return sum(queued.waits_last for queued in self._pods.values())

    def take(self, uid: str) -> QueuedPod | None:
        """Pop a certain pod out of order; None if it is gated, failed with an error, or is in flight."""
        queued = self._pods.get(uid)
        if queued is None or queued.place not in _READY or queued.errors:
            return None
        self._leave(queued)
        self._begin(queued)
        return queued

    def _begin(self, queued: QueuedPod) -> None:
        if queued.errors:
            self._groups.changed(queued)
        move(queued, PodState.IN_CYCLE)
        queued.serves_time = False
        queued.attempts += 1
        queued.missed = ()
        self._begin_attempt(queued)

    def _begin_attempt(self, queued: QueuedPod) -> None:
        queued.began_at = self._ledger.epoch
        self._in_flight += 1

    def rejected(
        self,
        queued: QueuedPod,
        rejectors: frozenset[str],
        now: Steady,
        *,
        wakes: Mapping[str, frozenset[ClusterEvent]] | None = None,
        quota: QuotaWait | None = None,
    ) -> None:
        """Put back an unschedulable pod. It waits for an event, or is in backoff if one arrived meanwhile.

        Args:
            queued: the pod.
            rejectors: what rejected it.
            now: the time.
            wakes: by the name of a rejector, the events that may help; one that is not there, any event may
                (`Profile.wakes`).
            quota: what it waits for, if pods that end help it only by that.
        """
        if not self._land(queued, now):
            return
        queued.rejectors = rejectors
        queued.wake_events = wake_events(rejectors, wakes or {})
        queued.rejections += 1
        queued.errors = 0
        if self._missed_an_event(queued):
            self._back_off(queued)
        else:
            self._unschedulable.add(queued, quota)
            self._keep_line(queued)

    @contextmanager
    def own_change(self, queued: QueuedPod) -> Iterator[None]:
        """What changes within follows from the attempt of a pod: it, and members of its groups, miss nothing by that.

        A pod that takes the nomination of another one frees that one's room. It was decided as if that were free: if it
        tried again, and the other one were nominated meanwhile, both would go on like that for ever.
        """
        before = self._ledger.epoch
        yield
        if self._ledger.epoch != before:
            together = (member for group in queued.groups for member in self.group(group).values())
            for member in {id(member): member for member in (queued, *together)}.values():
                if member.state is PodState.IN_CYCLE:
                    self._pass_over(member, before)

    def _pass_over(self, queued: QueuedPod, before: int) -> None:
        """Have a pod in flight miss nothing by the events after an epoch; those before it still count."""
        since = self._ledger.since(queued.began_at)
        if since is not None:
            earlier = since[: max(0, before - queued.began_at)]
            queued.missed = tuple({*queued.missed, *earlier})
            queued.began_at = self._ledger.epoch

    def wait(self, queued: QueuedPod) -> None:
        """Let a pod that has a node wait at Permit; events do not move it."""
        self._leave(queued)
        move(queued, PodState.WAITING)
        self._groups.set_place(queued, True)

    def resume(self, queued: QueuedPod) -> None:
        """Continue with a pod that waited at Permit."""
        move(queued, PodState.ASSUMED)
        self._begin_attempt(queued)

    def returned(self, queued: QueuedPod, now: Steady) -> None:
        """Put back a pod that lost its node to others, with backoff."""
        if self._land(queued, now):
            queued.rejections += 1
            queued.errors = 0
            queued.serves_time = True
            self._back_off(queued)

    def gate(self, queued: QueuedPod, membership: Membership, now: Steady) -> None:
        """Gate a pod in flight that must wait for its groups."""
        if self._land(queued, now):
            self._groups.join(queued, membership.groups)
            self._gate(queued, membership)

    def resume_attempt(self, queued: QueuedPod, now: Steady, *, behind: bool = False) -> None:
        """Put back a pod whose attempt is not finished: it keeps its slot, and goes on with it.

        behind: it goes on after the pods of its priority that are there now, since its attempt may take long.
        """
        since = now if behind else queued.timestamp
        if self._land(queued, now):
            queued.timestamp = since
            queued.attempts -= 1
            queued.unfinished += 1
            self._enqueue(queued)

    def activate(self, queued: QueuedPod, now: Steady) -> None:
        """Put back a pod for an immediate retry that does not count as an attempt."""
        if self._land(queued, now):
            self._enqueue(queued)

    def failed(self, queued: QueuedPod, now: Steady) -> None:
        """Put back a pod with backoff after its attempt ended with an error."""
        if self._land(queued, now):
            self._groups.changed(queued)
            queued.errors += 1
            self._back_off(queued)

    def done(self, uid: str) -> None:
        """Remove a pod that is bound, by whomever."""
        self._remove(uid, PodState.BOUND)

    def assumed(self, queued: QueuedPod) -> None:
        """Note that a pod in flight counts on a node from now on."""
        move(queued, PodState.ASSUMED)
        self._waits_no_longer(queued)

    def begin_binding(self, queued: QueuedPod) -> None:
        """Note that the binding cycle of a pod begins."""
        if self._pods.get(queued.pod.uid) is queued:
            move(queued, PodState.BINDING)

    def binding_sent(self, queued: QueuedPod) -> None:
        """Note that a pod is bound from now on, unless the answer says that it is not."""
        if self._pods.get(queued.pod.uid) is queued:
            move(queued, PodState.SENT)

    def binding_not_sent(self, queued: QueuedPod) -> None:
        """Note that the binding of a pod did not go out after all."""
        if self._pods.get(queued.pod.uid) is queued and queued.state is PodState.SENT:
            move(queued, PodState.BINDING)

    def move_on_event(self, event: ClusterEvent, now: Steady) -> int:
        """Note an event and move the rejected pods that it may help; return their number.

        Very many of them are left to `move_some`; `pop` first moves those that are left. A queue that follows a cluster
        hears of the events there by itself.
        """
        self._ledger.note(event)
        return self._help(event, now)

    def _help(self, event: ClusterEvent, now: Steady) -> int:
        helped = self._unschedulable.help(event, now)
        self._move_if_few()
        return helped

    def _move_if_few(self) -> None:
        """Move the pods that events may help, unless they are very many."""
        if self._unschedulable.number_helped <= MOVED_AT_ONCE:
            self._move_helped(MOVED_AT_ONCE)

    def has_to_move(self, now: Steady) -> bool:
        """Return whether `move_some` has work."""
        due = self._backoff.next_due()
        return not self._is_sorted or self._unschedulable.number_helped > 0 or (due is not None and due <= now)

    def move_some(self, now: Steady) -> bool:
        """Move some of the pods that events may help, then of those whose backoff has ended; return if more are left.

        After new rules, pods are first sorted by them. When none are left, pods are popped in the order that they would
        have if all had been moved at once.
        """
        if not self._is_sorted and self._go_on_sorting():
            return True
        moved = self._move_helped(MOVED_AT_ONCE)
        while moved < MOVED_AT_ONCE and (queued := self._backoff.pop_due(now)) is not None:
            self._retry(queued)
            moved += 1
        return self.has_to_move(now)

    def _move_helped(self, most: int) -> int:
        helped = self._unschedulable.helped(most)
        for uid, at in helped:
            queued = self._pods[uid]
            if queued.place is Place.UNSCHEDULABLE:  # a pod before it may have been held, and have woken this one
                self._wake(queued, at)
        return len(helped)

    def wake(self, uid: str, event: ClusterEvent, now: Steady) -> bool:
        """Have one pod see an event; if it is gated, check it again. Return whether the event may help."""
        queued = self._pods.get(uid)
        if queued is None:
            return False
        match queued.place:
            case Place.GATED:
                return self.recheck(queued)
            case Place.IN_FLIGHT:
                queued.missed = (*queued.missed, event)
            case Place.UNSCHEDULABLE if queued.wake_events is None or event in queued.wake_events:
                self._wake(queued, now)
                return True
        return False

    def _wake(self, queued: QueuedPod, now: Steady) -> None:
        self._leave(queued)
        if backoff_end(queued) > now:
            self._back_off(queued)
        else:
            self._retry(queued)

    def use(
        self,
        *,
        position: PositionOf,
        hold: HoldReason,
        membership: MembershipOf = lambda queued: NO_GROUPS,
        placed: NumberOf = lambda group_of, group: 0,
    ) -> None:
        """Use new rules to order, hold and group pods, including those that wait.

        All but the first of very many pods are left to `move_some`; see `move_on_event`.

        placed: how many members of a group have a node.
        """
        self._position, self._hold, self._membership, self._placed = position, hold, membership, placed
        self.sort_again()

    def sort_again(self) -> None:
        """Order, hold and group the pods that wait by the rules in use, as if these were new; as with `use`."""
        self._active.clear()  # keys of two orders cannot be compared
        self._sorting = self._sort_again()
        while self._go_on_sorting() and len(self._pods) <= MOVED_AT_ONCE:
            pass

    def _go_on_sorting(self) -> bool:
        """Sort more pods by the rules in use; return whether any are left."""
        for _ in self._sorting:
            return True
        self._sorting = iter(())
        self._is_sorted = True
        return False

    def _sort_again(self) -> Iterator[None]:
        """Group, order and hold the pods that wait by the rules in use, some at a time."""
        self._is_sorted = False
        pods = list(self._pods.values())
        tickets = {queued.pod.uid: queued.ticket for queued in pods if queued.place is Place.ACTIVE}

        def order_again(queued: QueuedPod) -> None:
            if queued.place is Place.ACTIVE and tickets.get(queued.pod.uid) == queued.ticket:  # not by an event since
                self._enqueue(queued)

        for work in (self._group_again, order_again, self._keep_line_again, self.recheck):
            for start in range(0, len(pods), MOVED_AT_ONCE):
                for queued in pods[start : start + MOVED_AT_ONCE]:
                    if self._pods.get(queued.pod.uid) is queued:
                        work(queued)
                yield

    def _group_again(self, queued: QueuedPod) -> None:
        if queued.place is not Place.GATED:
            self._groups.join(queued, self._membership(queued).groups)

    def _keep_line_again(self, queued: QueuedPod) -> None:
        if queued.place in (Place.BACKOFF, Place.UNSCHEDULABLE):
            self._keep_line(queued)

    def recheck_gated(self) -> int:
        """Check all gated pods again; return how many were ungated."""
        return sum(self.recheck(queued) for queued in [*self._held_by_policy.values(), *self._groups.gated])

    def recheck(self, queued: QueuedPod) -> bool:
        """Check a gated pod without scheduling gates again; return whether it was ungated."""
        uid = queued.pod.uid
        if queued.place is Place.GATED and self._pods.get(uid) is queued and uid not in self._with_gates:
            self._leave(queued)
            self._enqueue(queued)
            self._let_in(queued)
        return queued.place is not Place.GATED

    def recheck_group(self, group: Group) -> None:
        """Ungate the pods of a group that is large enough now."""
        requirement = self._groups.gated_requirement(group)
        if requirement is not None:
            number = requirement.filled(
                lambda group_of, other: self._groups.without_place(other) + self._placed(group_of, other)
            )
            self._ask_again.update((queued.pod.uid, queued) for queued in self._groups.ready(group, number))
            self.ask_again()

    def why_held(self, queued: QueuedPod) -> str | None:
        """Return why a pod is to be held by now; None: it is not."""
        return self._hold(queued)

    def hold(self, uid: str, why: str) -> None:
        """Gate a pod that waits for its next attempt, and is to be held by now. Its group does without it meanwhile."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place in _READY:
            self._leave(queued)
            self._gate_again(queued, why)

    def group_changed(self, rule: str, name: str) -> None:
        """Check the pods again that wait for the group `namespace/key` of a rule."""
        self._ask_again.update((queued.pod.uid, queued) for queued in self._groups.gated_by(rule, name))
        self.ask_again()

    def ask_again(self) -> None:
        """Check gated pods again whose group has changed; only the first ones if there are very many."""
        for queued in list(islice(self._ask_again.values(), ASKED_AT_ONCE)):
            uid = queued.pod.uid
            del self._ask_again[uid]
            if self._pods.get(uid) is queued and self._groups.is_gated(uid):
                self._leave(queued)
                self._enqueue(queued)

    def flush(self, now: Steady) -> None:
        """Move pods whose backoff has ended to the active queue, and sort those whose position has expired."""
        while (queued := self._backoff.pop_due(now)) is not None:
            self._retry(queued)
        for _ in range(ORDERED_AT_ONCE):
            ended = self._active.pop_ended(now)
            if ended is None:
                break
            if ended.place is Place.ACTIVE:
                self._push_active(ended)
            else:
                self._keep_line(ended)

    def help_some(self, uids: Iterable[str], now: Steady) -> None:
        """Have rejected pods tried again when their backoff has ended; `move_some` moves them."""
        waiting = [uid for uid in uids if (queued := self._pods.get(uid)) and queued.place is Place.UNSCHEDULABLE]
        self._unschedulable.help_some(waiting, now)

    def flush_leftovers(self, now: Steady) -> int:
        """Flush pods that have been unschedulable for too long, as `move_on_event`; return their number."""
        left = [q.pod.uid for q in self._unschedulable if now - q.timestamp > UNSCHEDULABLE_TIMEOUT_SECONDS]
        self._unschedulable.help_some(left, now)  # their backoff ended long ago
        self._move_if_few()
        return len(left)

    # --- places --------------------------------------------------------------------------------------

    def _enqueue(self, queued: QueuedPod) -> None:
        why = self._hold(queued)
        membership = self._membership(queued) if why is None else Membership(why=why)
        self._groups.join(queued, membership.groups)
        if membership.why is None:
            self._push_active(queued)
        else:
            self._gate(queued, membership)

    def _retry(self, queued: QueuedPod) -> None:
        """Make a rejected pod active again, unless it is held by now."""
        if not self._hold_back(queued):
            self._push_active(queued)

    def _hold_back(self, queued: QueuedPod) -> bool:
        """Gate a pod that is in no place if it is held; return whether it is. Its group does without it meanwhile."""
        why = self._hold(queued)
        if why is not None:
            self._gate_again(queued, why)
        return why is not None

    def _gate_again(self, queued: QueuedPod, why: str) -> None:
        queued.reported_reason = ""  # since then it was reported that nothing fits
        self._groups.join(queued, ())
        self._gate(queued, Membership(why=why))

    def _gate(self, queued: QueuedPod, membership: Membership) -> None:
        uid, why = queued.pod.uid, membership.why
        assert why is not None
        move(queued, PodState.GATED)
        queued.gated_because = why
        if gates(queued) is not None:
            self._with_gates[uid] = queued
        elif membership.waits_for is not None:
            self._groups.gate(queued, membership)
        else:
            self._held_by_policy[uid] = queued
        if uid not in self._with_gates and (queued.reported_reason != why or queued.pod.nominated_node):
            self._unreported[uid] = queued
        self._waits_no_longer(queued)
        self._active.unblock(uid)

    def _regroup(self, queued: QueuedPod) -> None:
        """Make a pod that has changed a member of the groups that it belongs to now; these may be complete with it."""
        self._groups.join(queued, self._membership(queued).groups)
        self._let_in(queued)

    def _let_in(self, queued: QueuedPod) -> None:
        """Check the other pods of its groups, after a pod arrived that is not gated for its own reason."""
        for group in queued.groups:
            self.recheck_group(group)

    def _push_active(self, queued: QueuedPod) -> None:
        queued.waits_last = self._long_turns.waits_last(queued)
        self._active.push(queued, last_position() if queued.waits_last else self._position(queued))

    def _back_off(self, queued: QueuedPod) -> None:
        self._backoff.push(queued)
        self._keep_line(queued)

    def _keep_line(self, queued: QueuedPod) -> None:
        """Block the pods behind one that waits for its next attempt, if its line is strict."""
        position = self._position(queued)
        if not position.strict or self._long_turns.waits_last(queued):
            self._waits_no_longer(queued)
            self._active.unblock(queued.pod.uid)  # it may have been in a strict line before
            return
        queued.serves_time = True  # otherwise the back-off of pods behind it would end early
        self._active.block(queued, position)

    def _waits_no_longer(self, queued: QueuedPod) -> None:
        """Wake those that must not delay a pod that waits no longer, if it was the first of its order."""
        if self._delays_others(queued):
            self._ledger.note(ClusterEvent.RESERVATION)

    def _delays_others(self, queued: QueuedPod) -> bool:
        """Return whether others must not delay a pod: it is the first of its order, with a reservation."""
        return queued.pod.uid in self._active.waited and self.first_before(queued) is None

    def _land(self, queued: QueuedPod, now: Steady) -> bool:
        """End an attempt; return whether the pod is still pending."""
        if self._pods.get(queued.pod.uid) is not queued:
            return False
        if queued.shown is not None:
            self.add(queued.update(queued.shown), now)
        self._leave(queued)
        self._groups.set_place(queued, False)
        queued.timestamp = now
        if ClusterEvent.OWN_UPDATE in queued.missed:
            self._regroup(queued)
        return True

    def _missed_an_event(self, queued: QueuedPod) -> bool:
        """Return whether an event since its attempt began may help a pod; one that is too long ago to know may."""
        since = self._ledger.since(queued.began_at)
        return since is None or any(_helps(queued, event) for event in (*since, *queued.missed))

    def _leave(self, queued: QueuedPod) -> None:
        """Remove a pod from its place. Its heap entries stay and become stale."""
        match queued.place:
            case Place.IN_FLIGHT:
                self._in_flight -= 1
            case Place.GATED:
                uid = queued.pod.uid
                self._unreported.pop(uid, None)
                if self._with_gates.pop(uid, None) is None and self._held_by_policy.pop(uid, None) is None:
                    self._groups.ungate(uid)
            case Place.UNSCHEDULABLE:
                self._unschedulable.remove(queued)
            case Place.ACTIVE:
                self._active.leave(queued)
            case Place.BACKOFF | Place.PERMIT:
                pass
            case _:
                assert_never(queued.place)


def _helps(queued: QueuedPod, event: ClusterEvent) -> bool:
    if queued.wake_events is None:
        return event is not ClusterEvent.TAKEN
    return event in ALWAYS or event in queued.wake_events


_NOBODY: Mapping[str, QueuedPod] = {}


class UnschedulablePods:
    """Pods by uid, and by the events that may help them."""

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPod] = {}
        self._by_event: dict[ClusterEvent | None, dict[str, QueuedPod]] = {}
        """Under None: pods that any event may help."""
        self._over_quota = PodsOverQuota()
        """Those that the events in `FREE_QUOTA` help only by their quota: they are not under these."""
        self._helped: dict[str, Steady] = {}
        """By uid: when the event came that may help the pod. It is to be moved, and no event needs to find it."""

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def add(self, queued: QueuedPod, quota: QuotaWait | None = None) -> None:
        """Add a pod with the events that may help it; quota: what it waits for, if pods that end help only by that."""
        move(queued, PodState.UNSCHEDULABLE)
        self._pods[queued.pod.uid] = queued
        if quota is not None and queued.wake_events is not None:
            self._over_quota.add(queued, quota)
        for event in self._wake_keys(queued):
            self._by_event.setdefault(event, {})[queued.pod.uid] = queued

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod."""
        uid = queued.pod.uid
        del self._pods[uid]
        for event in self._wake_keys(queued):
            if (there := self._by_event.get(event)) is not None:
                there.pop(uid, None)
        self._over_quota.remove(uid)
        self._helped.pop(uid, None)

    def help(self, event: ClusterEvent, now: Steady) -> int:
        """Note that the pods are to be moved that an event may help; return how many more these are."""
        if not self._pods:
            return 0
        before = len(self._helped)
        if event in ALWAYS:
            self.help_some(self._pods, now)
        else:
            for key in (event, None):  # without these pods: the next event need not pass over them
                self.help_some(self._by_event.pop(key, _NOBODY), now)
            if event in FREE_QUOTA:
                self.help_some([queued.pod.uid for queued in self._over_quota.helped()], now)
        return len(self._helped) - before

    def help_some(self, uids: Iterable[str], now: Steady) -> None:
        """Note that these pods are to be moved."""
        for uid in uids:
            self._helped.setdefault(uid, now)

    @property
    def has_any(self) -> bool:
        """Whether any pod waits here."""
        return bool(self._pods)

    @property
    def number_helped(self) -> int:
        """How many pods are to be moved."""
        return len(self._helped)

    def helped(self, most: int) -> list[tuple[str, Steady]]:
        """Return the first pods that are to be moved, with the time of the event."""
        return list(islice(self._helped.items(), most))

    def would_be_found(self, queued: QueuedPod) -> bool:
        """Return whether a pod waits here and is found by each event that may help it."""
        uid = queued.pod.uid
        return self._pods.get(uid) is queued and (
            uid in self._helped or all(uid in self._by_event.get(event, ()) for event in self._wake_keys(queued))
        )

    def uids(self) -> set[str]:
        """Return the pods that wait here."""
        return set(self._pods)

    def _wake_keys(self, queued: QueuedPod) -> tuple[ClusterEvent | None, ...]:
        if queued.wake_events is None:
            return (None,)
        if queued.pod.uid in self._over_quota:
            return tuple(queued.wake_events - FREE_QUOTA)
        return tuple(queued.wake_events)
