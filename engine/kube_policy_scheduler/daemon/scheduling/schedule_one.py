"""Schedule one pod, top to bottom: scheduling cycle, assume, permit, binding cycle, failure handling.

Scheduling cycles run one after another in the event loop, in short batches, and wait for nothing. Binding cycles run
concurrently. A pod that has a node is assumed: it counts there at once, until the watch confirms it or its binding
fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import NamedTuple, NoReturn, assert_never
from uuid import uuid4

import msgspec
import numpy as np

from kube_policy_scheduler import remembered
from kube_policy_scheduler.adapters.http.extender_error import ExtenderError
from kube_policy_scheduler.adapters.kube.binding import Begun, Bound, Outcome, Outdated, Refused, Unknown
from kube_policy_scheduler.cluster.devices.node_devices import ANNOTATION, annotation
from kube_policy_scheduler.cluster.name_order import name_order_in_steps
from kube_policy_scheduler.cluster.node_selectors import make_masks
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.usable_capacity import find_usable_in_steps
from kube_policy_scheduler.cluster.search_work import STEPS_IN_A_TURN, OutOfTurn, most_steps, search_work
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.cluster.steps import Unfinished, in_turn, now
from kube_policy_scheduler.cluster.taints import taint_sets_in_steps
from kube_policy_scheduler.daemon.observing.observers import AttemptFailed, PodBound
from kube_policy_scheduler.daemon.scheduling.above_max_evictions import AboveMaxEvictions
from kube_policy_scheduler.daemon.scheduling.binding_cycles import BindingCycle, BindingCycles
from kube_policy_scheduler.daemon.scheduling.context import AssumedPod, Basis, Policies, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.deferred_resizes import DeferredResizes
from kube_policy_scheduler.daemon.scheduling.event_handlers import EventHandlers
from kube_policy_scheduler.daemon.scheduling.evictions import Eviction, Evictions
from kube_policy_scheduler.daemon.scheduling.extenders import ExtenderLock, Extenders, PodGone
from kube_policy_scheduler.daemon.scheduling.gated_pods import REPORT_AFTER_SECONDS, GatedPods
from kube_policy_scheduler.daemon.scheduling.hand_over import HandOver
from kube_policy_scheduler.daemon.scheduling.in_flight import InFlight, PodWork
from kube_policy_scheduler.daemon.scheduling.live_algorithm import LiveAlgorithm
from kube_policy_scheduler.daemon.scheduling.pace import Pace
from kube_policy_scheduler.daemon.scheduling.queue_evictions import QueueEvictions, rule_of
from kube_policy_scheduler.daemon.scheduling.reservations import Reservations
from kube_policy_scheduler.daemon.scheduling.sharding import is_passed_on
from kube_policy_scheduler.daemon.scheduling.short_gang_evictions import ShortGangEvictions
from kube_policy_scheduler.framework.decide.algorithm import NO_POLICY
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.evaluate.extender_verdict import ExtenderVerdict, nodes_to_ask
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.groups.waiting_pods import NOTHING_WAKES, WaitingPods
from kube_policy_scheduler.framework.plugins.dynamic_resources import Deallocation
from kube_policy_scheduler.framework.preempt.preemption import EvictionRules, Preemption, nomination_after, preferred
from kube_policy_scheduler.framework.preempt.trials import VERDICT_WORK
from kube_policy_scheduler.framework.queue.scheduling_queue import Membership, Place, QueuedPod
from kube_policy_scheduler.framework.quota import QUOTA, quota_wait
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims
from kube_policy_scheduler.framework.reserve.claim_reservation import reserve_on as reserve_claims
from kube_policy_scheduler.framework.reserve.claim_reservation import undo as undo_claims
from kube_policy_scheduler.framework.reserve.volume_reservation import VolumeReservation
from kube_policy_scheduler.framework.reserve.volume_reservation import reserve as reserve_volumes
from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)

WORK_IN_A_TURN = 3_000
"""Of a search for victims before other work gets its turn, in units of 2 µs (see `trials.NODE_WORK`)."""
TIMES_FOR_A_GANG = 2
"""So much more of a plan for a gang: each of its turns also repeats what the earlier ones have placed."""
SPARE_TURNS = 10
"""After the turns that it takes to ask about every pod: a search that changes set back for this long is finished in
one turn."""
LABELS_READ_AHEAD = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""Labels whose columns are made after the start: with 130,000 nodes, one of them holds up the loop for 20 to 100 ms."""
BATCH_SECONDS = 0.002
"""Longest batch of scheduling cycles before the event loop runs. It limits the delay of watch events and bindings."""
FLUSH_EVERY_SECONDS = 30.0
"""Interval of the flush of pods that have been unschedulable for too long, as in kube-scheduler."""
FORGET_EVERY_SECONDS = 150.0
"""What is kept for pods like those that are gone goes after it was not used for so long, and at most twice that."""
EVICT_AGAIN_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Pauses before victims are tried again, of whose gangs some are gone already."""
MOST_EXTENDER_ROUNDS = 3
"""How often extenders are asked about a pod in one attempt, if the nodes that they allowed are taken meanwhile."""
NOMINATE_AFTER_SECONDS = 1.0
"""A pod waits this long for its gang, its volumes or its devices before its node is written as its nominated node.
kube-scheduler writes at once; most gangs are complete within milliseconds, and a write costs as much as a binding."""
DOUBT_SECONDS = 5.0
"""Interval between two checks of a binding whose result is unknown after minutes."""


class Scheduler:
    """Places the pods of a queue on the nodes of a cluster."""

    def __init__(self, context: SchedulerContext, *, leading: bool = True) -> None:
        """leading: whether this replica may bind from the start, before `lead` says so."""
        self.context = context
        self.cluster, self.queue, self.view = context.cluster, context.queue, context.view
        self.leading = leading
        self.queue.keeps_histories = logger.isEnabledFor(logging.DEBUG)
        self._clock, self._stopwatch = context.clock, context.stopwatch
        self.pace = Pace(context.stopwatch, leading=leading)
        self._reporter = context.reporter
        self._work = search_work(context.cluster.store)
        self._flushed_at = self._forgot_at = -inf
        self.algorithm = LiveAlgorithm(context)
        self.binding_cycles = BindingCycles()
        self._permit_reports = PermitReports(context, self.algorithm)
        self.waiting_pods = waiting_pods(context, self.algorithm, self._permit_reports)
        self.gated_pods = GatedPods(context, self.algorithm, self.waiting_pods)
        self.event_handlers = EventHandlers(
            context,
            self.algorithm,
            self.waiting_pods,
            on_assigned=self.on_assigned,
            on_left=self._left,
            on_gone=self.binding_cycles.failed,
        )
        self.hand_over = HandOver(context, self.waiting_pods, self.event_handlers)
        self.reservations = Reservations(context)
        self._searching: QueuedPod | None = None
        """A pod in flight whose search for devices goes on once another pod had its turn."""
        self._rejections: dict[str, _RejectedMember] = {}
        """By uid, members of gangs for which others are evicted at the same time: each turn handles a few of them."""
        self.in_flight = InFlight(wake=context.wakeups.requested.set)
        self.evictions = Evictions(
            context,
            waiting_pods=self.waiting_pods,
            cycles=self.binding_cycles,
            in_flight=self.in_flight,
            passes=self.event_handlers.passes,
        )
        self.deferred_resizes = DeferredResizes(context, self.algorithm, self.in_flight, self.evictions)
        self.short_gangs = ShortGangEvictions(context, self.waiting_pods.short, self.in_flight, self.evictions)
        self.queue_evictions = QueueEvictions(self.cluster)
        self.above_max = AboveMaxEvictions(
            context, self.in_flight, self.evictions, self.queue_evictions, decides_queues=self.algorithm.decides_queues
        )
        self.extenders = context.extenders
        self.extender_lock = ExtenderLock(context.queue)

    # --- inputs of decisions ---------------------------------------------------------------------------

    def use_policies(self, policies: Policies) -> None:
        """Use these policies from the next pod on; pods that wait for their gang are decided again."""
        self.algorithm.use_policies(policies)
        self.cluster.forget_rules(has_queues=any(profile.queues is not None for profile in policies.profiles))
        frame = self.algorithm.frame
        self.queue.use(
            position=lambda queued: policies.position(queued, frame),
            hold=lambda queued: policies.hold(queued, frame),
            membership=self.waiting_pods.membership,
            placed=self.cluster.counters.group_size,
        )
        self.waiting_pods.withdraw_all()
        self.event_handlers.policies_changed()
        self.context.wakeups.requested.set()

    def use_signals(self, signals: Signals) -> None:
        """Use these signals from the next pod on."""
        self.algorithm.use_signals(signals)
        self.event_handlers.signals_changed()

    def clock_was_set(self, ahead: float) -> None:
        """Go by what the wall clock shows from now on, this many seconds ahead, wherever policies ask for it."""
        self.cluster.ahead = ahead
        self.queue.sort_again()
        self.context.wakeups.requested.set()

    def lead(self, leading: bool) -> None:
        """Start or stop scheduling."""
        self.leading = leading
        self.pace.led(leading)
        if not leading:
            self.short_gangs.stop()
            self.waiting_pods.withdraw_all(keeps_nominations=True)
            for rejection in self._rejections.values():
                self._evict_nobody(rejection.decision.preemption)
            for queued in (*self.extender_lock.withdraw_all(), *(each.queued for each in self._rejections.values())):
                self.queue.resume_attempt(queued, self._clock())
            self._rejections.clear()
            if self._searching is not None:
                self._resume_search(self._searching)
                self._searching = None
            self._permit_reports.drop_all()
        self.context.wakeups.requested.set()

    def on_assigned(self, pods: Sequence[PodInfo]) -> None:
        """Hear of pods that are on nodes, before the cluster knows; a mode of the scheduler may do more."""
        self.deferred_resizes.note(pods)

    def on_left(self, uids: Sequence[str]) -> None:
        """Hear of pods that are gone or on nodes, before the cluster knows; for modes of the scheduler."""

    def _left(self, uids: Sequence[str]) -> None:
        """Pods are gone or on nodes: if one waited for new nodes, another one may ask for them now."""
        awaiting = self.algorithm.awaiting_nodes
        for _ in filter(awaiting.withdraw, uids if awaiting.knows_any else ()):
            follower = awaiting.next_for_others()
            queued = self.queue.get(follower) if follower is not None else None
            if queued is not None and queued.place is Place.UNSCHEDULABLE:
                self.queue.activate(queued, self._clock())
                self.context.wakeups.requested.set()
        self.on_left(uids)

    # --- the loop ------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Run the scheduling loop until it is cancelled."""
        requested = self.context.wakeups.requested
        self.pace.led(self.leading)
        while True:
            requested.clear()
            if self.leading and not self.view():
                await self.view.news()
                self.pace.waited()
                continue
            self.keep_queue()
            decided = self.schedule_batch() > 0
            self.pace.passed(decided=decided, has_active=self.queue.has_active())
            if self._has_work():
                await asyncio.sleep(0)
            else:
                await self._wait()
                self.pace.waited()

    def _has_work(self) -> bool:
        if self.queue.has_to_ask() or (self.leading and self.gated_pods.is_looking):
            return True
        if self.queue.has_to_move(self._clock()):
            return True
        return self._may_schedule() and (
            self._permit_reports.has_next()
            or bool(self._rejections)
            or self.is_searching
            or self.waiting_pods.has_next()
            or self.extender_lock.has_next()
            or self.queue.has_active()
        )

    @property
    def is_searching(self) -> bool:
        """Return whether a pod goes on with its search for devices once another pod had its turn."""
        return self._searching is not None

    async def _wait(self) -> None:
        # without leadership nothing is due; otherwise the loop would be busy
        due = self.queue.next_due() if self._may_schedule() else None
        waits_since = self.waiting_pods.unnominated_since
        nominates = waits_since + NOMINATE_AFTER_SECONDS if waits_since is not None else None
        # a standby evicts nobody and reserves nothing: what it leaves undone must not keep its loop busy
        acts = self.leading and self.algorithm.policies is not None
        evicts = self.waiting_pods.short.next_due() if acts else None
        reserves = self.waiting_pods.backfill.next_due() if acts else None
        dues = (due, self.waiting_pods.next_due(), reserves, nominates, evicts)
        ends = [at - self._clock() for at in dues if at is not None]
        pause = min(REPORT_AFTER_SECONDS, *ends, REPORT_AFTER_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(pause, 0.001)):
                await self.context.wakeups.requested.wait()

    def keep_queue(self) -> None:
        """Do the work that is due by time, without an event."""
        now = self._clock()
        self.queue.ask_again()
        if now - self._flushed_at >= FLUSH_EVERY_SECONDS:
            self._flushed_at = now
            self.queue.flush_leftovers(now)
            if now - self._forgot_at >= FORGET_EVERY_SECONDS:
                self._forgot_at = now
                self.cluster.forget_long_unused()
                remembered.forget()
            self.algorithm.keep_in_use(self.cluster.templates_in_use)
            if self.cluster.quota_usage is not None:  # a standby keeps the memory of past usage for when it leads
                self.cluster.quota_usage.remember(now)
        if self.leading:  # a standby writes nothing about pods either
            self.gated_pods.look(now)
            self.deferred_resizes.look(now)
            if self.algorithm.policies is not None:
                self.short_gangs.look(now)
                self.waiting_pods.backfill.look(now)
                if now >= self.above_max.reclaim.look_at:
                    self.above_max.look(self.algorithm.policies, now)
            for assumed in self.waiting_pods.unnominated(since=now - NOMINATE_AFTER_SECONDS):
                self.context.announce(assumed.queued, assumed.host)
        self.waiting_pods.expire(now)

    def _may_schedule(self) -> bool:
        return self.leading and self.algorithm.policies is not None and not self.in_flight.is_saturated

    def schedule_batch(self) -> int:
        """Schedule pods until none is left, the batch is over or too many bindings are in flight; return how many."""
        end = self._stopwatch() + BATCH_SECONDS
        now = self._clock()
        while self.queue.move_some(now):  # first all of them: the next pod may be one of these
            if self._stopwatch() > end:
                return 0
        scheduled = 0
        while self._may_schedule():
            if self._permit_reports.has_next() or self._rejections:
                if self._permit_reports.has_next():  # first all of them: the next pod may be one of these
                    self._permit_reports.report_next()
                else:
                    self._handle_next_rejection()
                if self._stopwatch() > end:
                    break
                continue
            searching, self._searching = self._searching, None
            queued = self.waiting_pods.next() or self.extender_lock.next() or self.queue.pop(self._clock())
            if searching is not None:
                self._resume_search(searching, behind=True)
            if queued is None:
                if searching is None:
                    break
                continue
            self.schedule_one(queued)
            scheduled += 1
            if self._stopwatch() > end:
                break
        return scheduled

    def is_under_way(self, uid: str) -> bool:
        """Return whether a task works on a pod that is in flight."""
        if self._searching is not None and self._searching.pod.uid == uid:
            return True
        return self.in_flight.has(uid) or self.extender_lock.has(uid) or uid in self._rejections

    def columns_in_steps(self) -> Iterator[None]:
        """Make in steps what the first decision would make in one turn: 150 ms with 130,000 nodes."""
        nodes = self.cluster.nodes
        yield from nodes.unschedulable_in_steps()
        yield from nodes.condition_in_steps("Ready")
        yield from taint_sets_in_steps(nodes)
        nodes.by_hash.columns()
        yield
        if self.algorithm.policies is not None:
            yield from self.algorithm.policies.preparing(self.cluster)

    def reading_ahead(self) -> Iterator[None]:
        """Make in steps what the first pod with a spread or an affinity, or that evicts others, would make in one."""
        nodes = self.cluster.nodes
        yield from name_order_in_steps(nodes)
        for key in LABELS_READ_AHEAD:
            yield from nodes.label_in_steps(key)

    def preparing(self, policies: Policies, *, are_listed: bool = True) -> Iterator[None]:
        """Make in steps what policies that are about to be used would make in one.

        That is what is used of their queues, and what they read of all nodes and pods.

        are_listed: whether nodes and pods are there. If not, `columns_in_steps` makes what is read of them: until then
            each that comes would have to be added.
        """
        if are_listed:
            yield from policies.preparing(self.cluster)
        trees = dict.fromkeys(profile.queues.tree for profile in policies.profiles if profile.queues is not None)
        if trees:
            yield from find_usable_in_steps(self.cluster.nodes)
        for tree in trees:
            yield from self.cluster.usage_in_steps(tree)

    async def drained(self) -> None:
        """Wait until no binding and no preemption is in flight."""
        await self.in_flight.drained()

    # --- scheduling cycle ----------------------------------------------------------------------------

    def schedule_one(self, queued: QueuedPod) -> None:
        """Run the scheduling cycle of a pod; afterwards it is in the queue again, or in its binding cycle."""
        began = self._stopwatch()
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("Attempting to schedule pod", extra={"pod": queued.pod.key})
        self._guard(queued, began, partial(self.scheduling_cycle, queued, began))

    def _guard(self, queued: QueuedPod, began: float, work: Callable[[], None]) -> None:
        """Run a step for a pod in flight. If it raises an error, forget the pod and put it back into the queue."""
        turns = self.context.turns
        turns.begin("deciding", queued.pod.key, queued)
        try:
            work()
        except Exception as error:
            logger.exception("unexpected error in a scheduling attempt", extra={"pod": queued.pod.key})
            uid = queued.pod.uid
            if self.in_flight.has(uid):
                return
            self.waiting_pods.forget(uid)
            self._forget(uid)
            if self.cluster.node_of(uid) is not None:
                self.cluster.displace(uid)
            self._attempt_failed(queued, f"internal error: {error!r}; see the scheduler's log", began=began)
        finally:
            turns.end()

    def took_too_long(self, queued: QueuedPod) -> None:
        """Note that a pod was being decided in a turn that was too long: after the second it waits behind all."""
        if self.queue.get(queued.pod.uid) is not queued:
            return
        was_last = queued.waits_last
        if self.queue.took_too_long(queued, self._clock()) and not was_last:
            why = "pod waits behind all others: deciding it took too long more than once"
            logger.warning(why, extra={"pod": queued.pod.key})

    def scheduling_cycle(self, queued: QueuedPod, began: float) -> None:
        """Find a node for the pod and assume it there, or handle the failure.

        A pod for which more is read, or searched for its devices, than in one turn goes on with it after the pods that
        are there by then: with two of them before all others, these would else wait until one is at its end.
        """
        most = most_steps(self.cluster.nodes.size)
        try:
            with self._work.attempt(queued.pod.uid, most=most, in_turn=STEPS_IN_A_TURN):
                goes_on = self._find_node(queued, began)
        except OutOfTurn:
            policies = self.algorithm.policies
            if queued.groups or policies is None or policies.position(queued, self.algorithm.frame).strict:
                self._resume_search(queued)  # its gang, or its line, waits for it
            else:
                self._searching = queued
            return
        if goes_on is not None:
            goes_on()

    def _resume_search(self, queued: QueuedPod, *, behind: bool = False) -> None:
        """Put back a pod that goes on with its search for devices in its next turn."""
        if self._is_in_flight(queued):
            self.queue.resume_attempt(queued, self._clock(), behind=behind)
            queued.unfinished -= 1  # which counts turns of searches for victims

    def _find_node(self, queued: QueuedPod, began: float) -> Callable[[], None] | None:
        """Decide a pod; return what follows from the decision, None if the attempt is not over, or ended before.

        Raises:
            OutOfTurn: the pod goes on with what is found in turns.
        """
        if self.hand_over.is_enabled and not self.algorithm.serves(queued.pod):
            self.event_handlers.disown(queued)
            return None
        if (node_name := self.reservations.claim(queued.pod)) is not None:
            self.context.nominate(queued, node_name)
        membership = self.waiting_pods.membership(queued)
        if membership.why is not None:
            self._gate(queued, membership)
            return None
        template, nodes, counters = queued.pod.template, self.cluster.nodes, self.cluster.counters
        if not (
            nodes.make_labels(template.labels_read)
            and make_masks(template, nodes)
            and counters.make_affinity(template, nodes)
            and (not has_claims(template, self.cluster) or self.cluster.resource_slices.make_ready())
        ):
            raise OutOfTurn
        requirements = membership.requirements
        is_last_turn = queued.unfinished >= SPARE_TURNS and queued.unfinished >= self._most_turns()
        most = inf if is_last_turn else WORK_IN_A_TURN * (TIMES_FOR_A_GANG if requirements else 1)
        found: tuple[Decision, Sequence[tuple[QueuedPod, Decision]]] | Decision | Unfinished
        if requirements:
            found = in_turn(self.waiting_pods.deciding(queued, requirements), most=most)
        else:
            found = in_turn(self.algorithm.deciding(queued), most=most)
        if isinstance(found, Unfinished):
            self._work.pause(queued.pod.uid)
            self.queue.resume_attempt(queued, self._clock())
            return None
        queued.unfinished = 0
        decision, others = (found, ()) if isinstance(found, Decision) else found
        return partial(self._follow, queued, requirements, decision, others, began)

    def _follow(
        self,
        queued: QueuedPod,
        requirements: tuple[GangRequirement, ...],
        decision: Decision,
        others: Sequence[tuple[QueuedPod, Decision]],
        began: float,
    ) -> None:
        """Do what follows from a decision."""
        if decision.host is not None:
            self.algorithm.awaiting_nodes.withdraw(queued.pod.uid)
        if decision.error:
            self._end_with_error(queued, decision, began)
        elif decision.host is None:
            for member, rejection in others:
                self._rejections[member.pod.uid] = _RejectedMember(member, requirements, rejection, began)
            self.handle_failure(queued, requirements, decision, began, others)
        elif self.hand_over.is_for_another(decision.host):
            self._report_decided(
                queued, decision, began, waits="its node belongs to another replica, which will bind it"
            )
            self.hand_over.assume(queued, decision.host)
            self._start(queued, partial(self._pass_on, queued, decision.host, began))
        elif self.extenders is not None and self.extenders.are_asked(queued.pod):
            if self.extender_lock.begin(queued):
                self._start(queued, partial(self._ask_extenders, queued, self.extenders, began))
        else:
            self._place(queued, decision, decision.host, requirements, began)

    def _place(
        self, queued: QueuedPod, decision: Decision, host: str, requirements: tuple[GangRequirement, ...], began: float
    ) -> None:
        """Assume a pod on its node, and bind what may be bound now."""
        assumed = self.assume(queued, decision, host, requirements, began)
        for each in self.permit(assumed) if assumed is not None else ():
            self.start_binding_cycle(each)

    # --- extenders -----------------------------------------------------------------------------------

    async def _ask_extenders(self, queued: QueuedPod, extenders: Extenders, began: float) -> None:
        """Ask extenders about a pod that has feasible nodes, and decide it among those that they allow."""
        try:
            for _ in range(MOST_EXTENDER_ROUNDS):
                with self.in_flight.awaiting_others():
                    verdict = await extenders.ask(queued.pod, partial(self._nodes_to_ask, queued, extenders))
                while not self.view():
                    await self.view.news()
                if not self._is_in_flight(queued):
                    return
                if not self.leading:
                    self.queue.resume_attempt(queued, self._clock())
                    return
                membership = self.waiting_pods.membership(queued)
                if membership.why is not None:
                    self._gate(queued, membership)
                    return
                decision = await self._decide_allowed(queued, verdict)
                if decision is None:
                    return
                if not decision.asks_again:
                    break
            else:
                why = f"the nodes changed {MOST_EXTENDER_ROUNDS} times while extenders were asked about them"
                self._attempt_failed(queued, why, began=began)
                return
            if decision.host is None:
                self.handle_failure(queued, membership.requirements, decision, began)
            else:
                self._place(queued, decision, decision.host, membership.requirements, began)
        except ExtenderError as error:
            if self._is_in_flight(queued):
                self._attempt_failed(queued, str(error), began=began)
        except PodGone:
            if self._is_in_flight(queued):  # the watch will show its end
                self._attempt_failed(queued, "the pod does not exist any more", began=began)
        finally:
            self.extender_lock.end()
            self.context.wakeups.requested.set()

    def _is_in_flight(self, queued: QueuedPod) -> bool:
        return self.queue.get(queued.pod.uid) is queued and queued.place is Place.IN_FLIGHT

    def _nodes_to_ask(self, queued: QueuedPod, extenders: Extenders, asked: frozenset[str]) -> list[str]:
        """Return the best feasible nodes of those that extenders were not asked about."""
        most = nodes_to_ask(self.cluster.nodes.size, percentage=extenders.percentage_of_nodes)
        return self.algorithm.best_nodes(queued, most=most, without=asked)

    async def _decide_allowed(self, queued: QueuedPod, verdict: ExtenderVerdict) -> Decision | None:
        """Decide a pod among allowed nodes; a search for victims takes turns. Return None if the pod is gone."""
        for _ in range(self._most_turns()):
            decision = in_turn(self.algorithm.deciding_allowed(queued, verdict), most=WORK_IN_A_TURN)
            if not isinstance(decision, Unfinished):
                return decision
            await asyncio.sleep(0)
            if not self._is_in_flight(queued):
                return None
        return now(self.algorithm.deciding_allowed(queued, verdict))

    async def _ask_before_preemption(
        self, queued: QueuedPod, extenders: Extenders, decision: Decision, found: Preemption
    ) -> None:
        """Let extenders drop nodes and change victims, and preempt on the best node that is left."""
        try:
            pod, profile = queued.pod, self.algorithm.profile(queued.pod)
            if profile is None:  # the policies were replaced
                self._requeue(queued, decision.rejectors)
                return

            def rules() -> EvictionRules:
                return EvictionRules(self.algorithm.frame(queued), profile)

            with self.in_flight.awaiting_others():
                left = await extenders.allowed_victims(pod, found.candidates, rules, self.context.wall())
        except (ExtenderError, PodGone) as error:
            if self._is_in_flight(queued):
                self._attempt_failed(queued, str(error) or "the pod does not exist any more", began=self._stopwatch())
            return
        if not self._is_in_flight(queued):
            return
        if not self.leading:
            self.queue.resume_attempt(queued, self._clock())
            return
        host = preferred(left, self.context.wall()) if left else None
        if host is None:
            logger.info("extenders left no candidate node for preemption", extra={"pod": queued.pod.key})
            found = replace(found, nominated_node=None, victims=())
        else:
            victims = tuple(each for each in left[host].pods if self.cluster.node_of(each.uid) is not None)
            found = replace(found, nominated_node=host, victims=victims)
            self._reporter.nominated(queued.pod, host)
        self._requeue_or_preempt(queued, decision.rejectors, found)

    def _most_turns(self) -> int:
        work = VERDICT_WORK * (len(self.cluster.pods) + self.cluster.nodes.size + len(self.queue))
        return work // WORK_IN_A_TURN + SPARE_TURNS

    def assume(
        self, queued: QueuedPod, decision: Decision, host: str, requirements: tuple[GangRequirement, ...], began: float
    ) -> AssumedPod | None:
        """Reserve volumes and devices and assume the pod; return None if something cannot be reserved."""
        pod, volumes, devices = queued.pod, None, None
        if pod.volumes:
            found = reserve_volumes(self._frame_on(queued, host))
            if isinstance(found, str):
                self._attempt_failed(queued, f"cannot reserve volumes on {host}: {found}", began=began)
                return None
            volumes = None if isinstance(found, VolumeReservation) and found.empty else found
        if has_claims(pod.template, self.cluster):
            frame = self._frame_on(queued, host).ordered(decision.device_order)
            devices = reserve_claims(frame, share_id=str(uuid4())[:24])
        basis = self._basis(host)
        assumed = AssumedPod(
            queued, host, began, volumes, requirements, basis, None if isinstance(devices, str) else devices
        )
        if isinstance(devices, str):
            assumed.unreserve(self.cluster)
            self._attempt_failed(queued, f"cannot reserve devices on {host}: {devices}", began=began)
            return None
        try:
            waits = self.waiting_pods.describe(requirements) if requirements else ""
            now = self._report_decided(queued, decision, began, waits=waits)
            self.cluster.assume(pod, host, now=now, devices=decision.devices)
            self.queue.assumed(queued)
        except Exception:
            assumed.unreserve(self.cluster)
            raise
        return assumed

    def permit(self, assumed: AssumedPod) -> Sequence[AssumedPod]:
        """Permit: return the pods that may bind now: this one, or its whole gang if complete. Otherwise it waits."""
        return self.waiting_pods.arrive(assumed) if assumed.requirements else (assumed,)

    def _frame_on(self, queued: QueuedPod, host: str) -> Frame:
        return self.algorithm.frame(queued).at(np.array([self.cluster.nodes.rows[host]]))

    def _report_decided(
        self,
        queued: QueuedPod,
        decision: Decision,
        began: float,
        *,
        waits: str = "",
        others: Sequence[Decision] = (),
    ) -> Steady:
        """Tell observers of a decision; return when it was made. others: see `Decided.others`."""
        now, seconds = self._clock(), self._stopwatch() - began
        decided = self.algorithm.record(queued, decision, now=now, seconds=seconds, waits=waits, others=others)
        self.context.observer.on_decided(decided)
        return now

    def _gate(self, queued: QueuedPod, membership: Membership) -> None:
        """Gate a pod whose gang does not exist or has too few pods."""
        self.algorithm.awaiting_nodes.withdraw(queued.pod.uid)
        self.queue.gate(queued, membership, self._clock())
        self.gated_pods.drop_nomination(queued)
        self.gated_pods.report(queued, self._clock())

    # --- binding cycle -------------------------------------------------------------------------------

    def start_binding_cycle(self, assumed: AssumedPod, *, after: Unknown | None = None) -> None:
        """Start the binding cycle of an assumed pod, concurrently with further scheduling cycles.

        after: the known result of an earlier binding to the same node.
        """
        cycle = self.binding_cycles.begin(assumed)
        if after is None:
            self.queue.begin_binding(assumed.queued)
            if self._begin_binding(cycle):
                return
        else:
            self.queue.binding_sent(assumed.queued)
        self._start(assumed.queued, partial(self.binding_cycle, cycle, after=after))

    def _begin_binding(self, cycle: BindingCycle) -> bool:
        """Send the binding without a task, where nothing comes before it, as for most pods; return whether."""
        assumed = cycle.assumed
        pod = assumed.queued.pod
        if assumed.volumes is not None or assumed.devices is not None or self.extenders is not None:
            return False
        if self.cluster.devices.held(pod.uid) or not self.view():
            return False
        work = self.in_flight.begin(pod.uid)
        is_sent = False
        try:
            is_sent = self.context.binder.begin(
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                node=assumed.host,
                still_holds=partial(self._claim_sending, cycle, assumed.basis),
                done=partial(self._end_binding, cycle, work),
            )
        except Exception:
            logger.exception("unexpected error while binding a pod", extra={"pod": pod.key})
        if not is_sent:
            self.in_flight.end(work)
        return is_sent

    def _end_binding(self, cycle: BindingCycle, work: PodWork, outcome: Bound | Begun) -> None:
        """End a binding cycle that is done, or go on with one that is not in a task."""
        queued = cycle.assumed.queued
        if isinstance(outcome, Begun):
            rest = partial(self.binding_cycle, cycle, begun=outcome)
            self.in_flight.go_on(work, self._guarded(queued, rest, began=self._stopwatch()))
            return
        try:
            self.queue.done(queued.pod.uid)
            self._post_bind(cycle.assumed, by_us=True)
        except Exception:
            logger.exception("unexpected error", extra={"pod": queued.pod.key})
        finally:
            self.cluster.resource_claims.let_go(queued.pod.uid)
            self.binding_cycles.end(cycle)
            self.in_flight.end(work)

    def settle(self, queued: QueuedPod) -> None:
        """Settle a pod in flight that no task works on: bind it, or put it back."""
        host = self.cluster.assumed.get(queued.pod.uid)
        if host is None:
            self._attempt_failed(queued, "its attempt was lost", began=self._stopwatch())
            return
        assumed = AssumedPod(queued, host, self._stopwatch(), None, (), self._basis(host))
        self.start_binding_cycle(assumed, after=_in_doubt("its binding was lost"))

    def _start(self, queued: QueuedPod, work: Callable[[], Awaitable[None]]) -> None:
        """Run work for a pod in flight concurrently. At the end the pod is in another part of the queue.

        work: called when its task runs: a coroutine that exists before would never be awaited if the task is cancelled
            before its first step.
        """
        self.in_flight.start(queued.pod.uid, self._guarded(queued, work, began=self._stopwatch()))

    async def _guarded(self, queued: QueuedPod, work: Callable[[], Awaitable[None]], *, began: float) -> None:
        try:
            await work()
        except Exception as error:
            logger.exception("unexpected error", extra={"pod": queued.pod.key})
            if self.queue.get(queued.pod.uid) is queued and queued.place is Place.IN_FLIGHT:
                self._forget(queued.pod.uid)
                self._attempt_failed(queued, f"internal error: {error!r}; see the scheduler's log", began=began)

    async def binding_cycle(
        self, cycle: BindingCycle, *, after: Unknown | None = None, begun: Begun | None = None
    ) -> None:
        """Bind volumes and claims, then the pod.

        after: the known result of an earlier binding to the same node. begun: what was sent before this task began.
        """
        assumed = cycle.assumed
        try:
            why = ""
            if begun is not None:
                await self._bind(cycle, None, begun)
                return
            if cycle.cancelled:
                assumed.unreserve(self.cluster)
            elif assumed.volumes is not None or assumed.devices is not None:
                why = await cycle.run_pre_bind(self._pre_bind(assumed))
            if cycle.cancelled:
                await self._binding_failed(assumed, cycle.cancelled)
            elif why:
                await self._binding_failed(assumed, why, unreserves=False)
            else:
                await self._bind(cycle, after)
        except Exception:
            self.binding_cycles.failed(assumed.queued.pod.uid)
            raise
        finally:
            self.cluster.resource_claims.let_go(assumed.queued.pod.uid)
            self.binding_cycles.end(cycle)

    async def _pre_bind(self, assumed: AssumedPod) -> str:
        """PreBind: bind volumes, then claims; return the reason of a failure, or ""."""
        context = self.context
        why = "cancelled"  # what a cancellation leaves
        loop = asyncio.get_running_loop()
        announces = loop.call_later(NOMINATE_AFTER_SECONDS, context.announce, assumed.queued, assumed.host)
        try:
            with self.in_flight.awaiting_others():
                why = await context.volumes.bind(assumed.volumes) if assumed.volumes is not None else ""
                if not why and assumed.devices is not None:
                    why = await context.claims.bind(assumed.devices)
                return why
        finally:
            announces.cancel()
            if assumed.devices is not None:
                if why:
                    undo_claims(assumed.devices, self.cluster)
                self.event_handlers.claims_settled(one.claim for one in assumed.devices.claims)

    async def _bind(self, cycle: BindingCycle, after: Unknown | None, begun: Begun | None = None) -> None:
        """Send the binding until its result is known; check its preconditions before each request."""
        assumed = cycle.assumed
        queued, host, basis = assumed.queued, assumed.host, assumed.basis
        pod = queued.pod
        while True:
            if begun is not None:
                outcome, begun = await self.context.binder.finish(begun), None
            else:
                while not self.view() and not cycle.cancelled:
                    await self.view.news()
                if pod.uid not in self.cluster.assumed:
                    if pod.uid not in self.cluster.pods:
                        await self._unreserve(assumed)
                    return  # the watch has shown the result
                if cycle.cancelled and after is None:
                    await self._binding_failed(assumed, cycle.cancelled)
                    return
                objection, basis = self._look_again(cycle, basis)
                if objection and after is None:
                    await self._binding_failed(assumed, objection)
                    return
                outcome = await self._ask_binder(cycle, basis, after, tries=not objection)
            match outcome:
                case Bound(by_us=by_us):
                    self.queue.done(pod.uid)
                    self._post_bind(assumed, by_us=by_us)
                    return
                case Refused(message=why):
                    await self._binding_failed(assumed, f"binding to {host} was rejected: {why}")
                    return
                case Unknown(message=why):
                    # The pod may be bound, so it stays assumed until the watch or a check shows the result.
                    logger.warning(
                        "result of the binding is unknown; checking the pod",
                        extra={"pod": pod.key, "node": host, "why": why},
                    )
                    after = outcome
                    self.queue.binding_sent(queued)
                    await asyncio.sleep(DOUBT_SECONDS)
                case Outdated():
                    if after is None:
                        self.queue.binding_not_sent(queued)
                case _:
                    assert_never(outcome)

    def _basis(self, host: str) -> Basis:
        """Return the current preconditions of a decision for a node."""
        return Basis(self.view.losses, self.event_handlers.mark(host))

    def _look_again(self, cycle: BindingCycle, basis: Basis) -> tuple[str, Basis]:
        """Return why the decision must not be sent any more, and what to compare with next time.

        "": it may be sent, on its current preconditions. An objection holds until these are looked at once more.
        """
        assumed, host = cycle.assumed, cycle.assumed.host
        now = self._basis(host)
        if now != basis and not self.waiting_pods.still_fits(assumed):
            return f"{host} changed before the binding was sent, and the pod no longer fits", basis
        if cycle.lost_members:
            if not self.waiting_pods.are_complete(assumed.requirements):
                return f"other members of its gang lost their nodes before its binding to {host} was sent", basis
            cycle.accept_losses()
        return "", now

    def _claim_sending(self, cycle: BindingCycle, basis: Basis) -> bool:
        """Return whether a decision may be sent; if so, it counts as sent, and nothing is cancelled any more."""
        assumed = cycle.assumed
        if cycle.cancelled or cycle.lost_members or not self.view():
            return False
        if basis.losses != self.view.losses or basis.mark != self.event_handlers.mark(assumed.host):
            return False
        self.queue.binding_sent(assumed.queued)
        return True

    async def _ask_binder(self, cycle: BindingCycle, basis: Basis, after: Unknown | None, *, tries: bool) -> Outcome:
        """tries: whether the binding may be sent (again); otherwise only its result is checked."""
        assumed = cycle.assumed
        pod, host, binder = assumed.queued.pod, assumed.host, self.context.binder
        devices = self.cluster.devices.held(pod.uid)
        extender = self.extenders.binder(pod) if self.extenders is not None else None
        try:
            if extender is not None and self.extenders is not None and after is None:
                still_holds = partial(self._claim_sending, cycle, basis)
                outcome = await self.extenders.bind(extender, pod, host, still_holds=still_holds)
                if not (isinstance(outcome, Unknown | Refused) and extender.settings.ignorable):
                    return outcome
                logger.warning(
                    "an extender did not bind a pod; binding it", extra={"pod": pod.key, "why": outcome.message}
                )
                after = outcome if isinstance(outcome, Unknown) else None
            elif after is not None and (not tries or (extender is not None and not extender.settings.ignorable)):
                return await binder.settle(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=host, after=after)
            return await binder.bind(
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                node=host,
                # record the devices of the pod, for a restarted scheduler
                annotations={ANNOTATION: annotation(devices)} if devices else None,
                after=after,
                still_holds=partial(self._claim_sending, cycle, basis),
            )
        except Exception as error:
            logger.exception("unexpected error while binding a pod", extra={"pod": pod.key})
            return _in_doubt(f"internal error: {error!r}")

    def _post_bind(self, assumed: AssumedPod, *, by_us: bool) -> None:
        """Report that a pod is bound."""
        queued, host = assumed.queued, assumed.host
        pod = queued.pod
        if not by_us:
            logger.info("Pod was already bound to this node by another scheduler", extra={"pod": pod.key, "node": host})
            self._reporter.bound(pod, host, by_us=False)
            return
        self.context.observer.on_bound(
            PodBound(
                pod,
                host,
                at=self.context.wall(),
                seconds=self._stopwatch() - assumed.began,
                attempts=queued.attempts,
                queued=queued.queued + self.cluster.ahead,
            )
        )
        fields = {"pod": pod.key, "node": host, "attempts": queued.attempts}
        logger.info("Successfully bound pod to node", extra=fields)
        self._reporter.bound(pod, host, by_us=True)

    async def _pass_on(self, queued: QueuedPod, host: str, began: float) -> None:
        """Pass the pod on to the replica that owns the node, which binds it."""
        if why := await self.hand_over.pass_on(queued, host):
            self._attempt_failed(queued, why, began=began)

    # --- failure handling ----------------------------------------------------------------------------

    def _handle_next_rejection(self) -> None:
        """Handle the rejection of a member of a gang for which others are evicted."""
        queued, requirements, decision, began = self._rejections.pop(next(iter(self._rejections)))
        if self._is_in_flight(queued):
            self._guard(queued, began, partial(self.handle_failure, queued, requirements, decision, began))
        else:
            self._evict_nobody(decision.preemption)

    def _nominate_preemptor(self, queued: QueuedPod, found: Preemption | None) -> None:
        """Nominate a pod before its victims are evicted, so that no other pod takes their room."""
        if found is None or not found.nominated_node or self.extenders is not None:
            return
        together = self.algorithm.frame_with_gang(queued).together
        self.context.nominate(queued, found.nominated_node, together=together)
        self.cluster.note_evictions((victim.uid for victim in found.victims), self._clock())

    def _evict_nobody(self, found: Preemption | None) -> None:
        """Note that the victims for a pod stay."""
        if found is not None:
            self.cluster.forget_evictions(victim.uid for victim in found.victims)

    def handle_failure(
        self,
        queued: QueuedPod,
        requirements: tuple[GangRequirement, ...],
        decision: Decision,
        began: float,
        others: Sequence[tuple[QueuedPod, Decision]] = (),
    ) -> None:
        """Handle an unschedulable pod: put it back, report the reason, and preempt if that helps.

        others: members of its gang that were rejected with it. They are nominated here; their rejections are handled
            later.
        """
        if requirements and (far := "; ".join(map(str, requirements))) not in decision.message:
            decision = msgspec.structs.replace(decision, message=f"{decision.message} {far}.")
        decision = self.algorithm.with_new_nodes(queued, decision, requirements)
        self._report_decided(queued, decision, began, others=[rejection for _, rejection in others])
        with self.queue.own_change(queued):
            for member, rejection in others:  # not before: observers look at what the decision saw
                self._nominate_preemptor(member, rejection.preemption)
        # a pod that waits for long is retried many times and fails for the same reason
        level = logging.INFO if decision.message != queued.rejected_for else logging.DEBUG
        fields = {"pod": queued.pod.key, "why": decision.message}
        if requirements:
            fields["gang"] = self.waiting_pods.describe(requirements, joining=0)
        logger.log(level, "Unable to schedule pod", extra=fields)
        queued.rejected_for = decision.message
        found, extenders = decision.preemption, self.extenders
        if (
            extenders is not None
            and found is not None
            and found.victims
            and found.candidates
            and extenders.preempt(queued.pod)
        ):
            # the status names a node once extenders have agreed to one
            open_yet = replace(found, keeps_nomination=True)
            self._reporter.unschedulable(msgspec.structs.replace(decision, preemption=open_yet))
            self.hand_over.give_back(queued)
            self._start(queued, partial(self._ask_before_preemption, queued, extenders, decision, found))
        else:
            self._reporter.unschedulable(decision)
            self.hand_over.give_back(queued)
            self._requeue_or_preempt(queued, decision.rejectors, found)

    def _requeue_or_preempt(self, queued: QueuedPod, rejectors: frozenset[str], found: Preemption | None) -> None:
        node_name = nomination_after(found, queued.pod, self.cluster)
        with self.queue.own_change(queued):
            if node_name:
                self.context.nominate(queued, node_name, together=self.algorithm.frame_with_gang(queued).together)
            elif node_name is not None:
                self.gated_pods.drop_nomination(queued)
        if found is not None and found.victims:
            self.cluster.returning_evictors.note(
                queued.pod, found.victims, self._clock(), reclaims=found.reclaims, sharing=found.sharing
            )
            found = self._without_waiting(queued, found)
            self.cluster.note_evictions((victim.uid for victim in found.victims), self._clock())
        given_up = found.claims if found is not None else None
        if found is not None and (found.victims or (given_up is not None and given_up.acts)):
            self._start(queued, partial(self._preempt, queued, rejectors, found))
        else:
            self._requeue(queued, rejectors)

    def _requeue(self, queued: QueuedPod, rejectors: frozenset[str]) -> None:
        """Put a pod into the unschedulable pods until an event may help it."""
        profile = self.algorithm.profile(queued.pod)
        if profile is None:
            self.queue.rejected(queued, frozenset((NO_POLICY,)), self._clock(), wakes=NOTHING_WAKES)
        else:
            quota = None
            if profile.queues is not None and rejectors == {QUOTA}:
                quota = quota_wait(self.cluster, profile.queues, queued.pod)
            self.queue.rejected(queued, rejectors, self._clock(), wakes=profile.wakes, quota=quota)

    def _without_waiting(self, queued: QueuedPod, found: Preemption) -> Preemption:
        """Reject victims that wait at Permit; return a preemption with the others, which must be evicted."""
        gone = self.waiting_pods.evict(found.victims, by=queued.pod)
        for victim in found.victims:
            if victim.uid in gone:
                self._reporter.preempted(victim, by=queued.pod, node_name=found.nominated_node or "")
        return replace(found, victims=tuple(victim for victim in found.victims if victim.uid not in gone))

    async def _preempt(self, queued: QueuedPod, rejectors: frozenset[str], found: Preemption) -> None:
        """Evict the victims while the pod is in flight, so that it does not miss the event when a victim ends.

        Claims that block the pod are deallocated first; that also causes an event.
        """
        if found.claims is not None:
            await self._deallocate(found.claims)
        if await self._evict_all(queued.pod, found):
            self._requeue(queued, rejectors)
        else:
            self._evict_nobody(found)
            self.queue.failed(queued, self._clock())

    async def _evict_all(self, pod: PodInfo, found: Preemption) -> bool:
        """Evict the victims; return whether all of them are terminating.

        Where gangs may be among them, none is evicted before the API server said that it would delete each of them. If
        it fails nevertheless once some are gone, the others are tried again for a while: no part of a gang stays.
        """
        victims = [victim for victim in found.victims if not victim.terminating]
        are_gangs = len(victims) > 1 and self._may_be_gangs(pod, victims)
        if are_gangs:
            tried = await asyncio.gather(*(self.evictions.try_evict(victim, by=pod) for victim in victims))
            if not all(tried):
                return False
        left = await self._evict_some(pod, victims, found)
        for pause in EVICT_AGAIN_SECONDS if are_gangs else ():
            if not 0 < len(left) < len(victims) or not self.leading:
                break
            await asyncio.sleep(pause)
            left = await self._evict_some(pod, left, found)
        return not left

    async def _evict_some(self, pod: PodInfo, victims: Sequence[PodInfo], found: Preemption) -> list[PodInfo]:
        """Evict victims, and return those for which that failed."""
        results = await asyncio.gather(*(self.evictions.evict(victim, by=pod) for victim in victims))
        for victim, result in zip(victims, results, strict=True):
            fields = {"pod": pod.key, "victim": victim.key}
            if result is Eviction.DELETED:
                logger.info("Preempted pod", extra=fields)
                self.queue_evictions.note(victim, rule_of(found), by=pod)
            elif result is Eviction.CANCELLED:
                logger.info("Preempted pod: its binding was cancelled", extra=fields)
            if result in (Eviction.DELETED, Eviction.CANCELLED):
                self._reporter.preempted(victim, by=pod, node_name=found.nominated_node or "")
        return [victim for victim, result in zip(victims, results, strict=True) if result is Eviction.FAILED]

    def _may_be_gangs(self, pod: PodInfo, victims: Iterable[PodInfo]) -> bool:
        profile = self.algorithm.profile(pod)
        if profile is not None and profile.gangs_of is not None:
            return True
        return any(victim.template.spec.scheduling_group is not None for victim in victims)

    async def _deallocate(self, given_up: Deallocation) -> None:
        """Deallocate one claim, and delete claims that are left over from earlier attempts."""
        for claim in given_up.one_of[:1]:
            await self.context.claims.deallocate(claim)
        for claim in given_up.delete:
            await self.context.claims.delete(claim)

    async def _binding_failed(self, assumed: AssumedPod, why: str, *, unreserves: bool = True) -> None:
        """Forget an assumed pod and put it back. unreserves: whether its claims must still be unreserved."""
        self._forget(assumed.queued.pod.uid)
        self.binding_cycles.failed(assumed.queued.pod.uid)
        if unreserves:
            await self._unreserve(assumed)
        self._attempt_failed(assumed.queued, why, began=assumed.began)

    def _forget(self, uid: str) -> None:
        """Forget a pod that is not bound after all."""
        self.event_handlers.take_back(uid)

    async def _unreserve(self, assumed: AssumedPod) -> None:
        """Unreserve the claims of a pod that is not bound after all."""
        if assumed.devices is not None:
            await self.context.claims.unreserve(assumed.devices)

    def _end_with_error(self, queued: QueuedPod, decision: Decision, began: float) -> None:
        """Put back a pod for which a filter had an error: it is tried again after backoff, as in kube-scheduler."""
        self._report_decided(queued, decision, began)
        level = logging.WARNING if decision.error != queued.rejected_for else logging.DEBUG
        queued.rejected_for = decision.error
        self.hand_over.give_back(queued)
        self._attempt_failed(queued, decision.error, began=began, level=level)

    def _attempt_failed(self, queued: QueuedPod, why: str, *, began: float, level: int = logging.WARNING) -> None:
        """Put back a pod whose attempt ended with an error, and report the error."""
        self.queue.failed(queued, self._clock())
        logger.log(level, "Error scheduling pod; retrying", extra={"pod": queued.pod.key, "why": why})
        try:
            failed = AttemptFailed(queued.pod, why, self.context.wall(), self._stopwatch() - began)
            self.context.observer.on_failed(failed)
            if self.queue.get(queued.pod.uid) is queued:
                self._reporter.failed(queued.pod, why)
                if not is_passed_on(queued.pod):  # which would give it back
                    self.gated_pods.drop_nomination(queued)
        except Exception:
            logger.exception("unexpected error in a report", extra={"pod": queued.pod.key})


class _RejectedMember(NamedTuple):
    """The rejection of a member of a gang, with whom others are evicted for it."""

    queued: QueuedPod
    requirements: tuple[GangRequirement, ...]
    decision: Decision
    began: float


def _in_doubt(why: str) -> Unknown:
    return Unknown(why, since=asyncio.get_running_loop().time())


class PermitReports:
    """Logs which pods at Permit give their places back, and reports each as a decision.

    A gang gives very many back at once, so each turn of the loop reports a few of them.
    """

    def __init__(self, context: SchedulerContext, algorithm: LiveAlgorithm) -> None:
        self._stopwatch, self._observer, self._reporter = context.stopwatch, context.observer, context.reporter
        self._context = context
        self._algorithm = algorithm
        self._rejected: dict[str, tuple[AssumedPod, str]] = {}
        """By uid, with the reason; they are not reported yet."""

    def withdrawn(self, assumed: AssumedPod) -> None:
        """A waiting pod is decided again: its node may be another one."""
        if not is_passed_on(assumed.queued.pod):
            self._context.clear_nomination(assumed.queued)

    def rejected(self, assumed: AssumedPod, why: str) -> None:
        """A waiting pod gave its place back."""
        self._rejected[assumed.queued.pod.uid] = assumed, why

    def has_next(self) -> bool:
        """Return whether pods that gave their places back are still to be reported."""
        return bool(self._rejected)

    def report_next(self) -> None:
        """Report the one that has waited longest, unless it is gone."""
        assumed, why = self._rejected.pop(next(iter(self._rejected)))
        queued = assumed.queued
        if self._context.queue.get(queued.pod.uid) is not queued:
            return
        rejection = Decision(queued.pod, None, message=why)
        decision = self._algorithm.with_new_nodes(queued, rejection, assumed.requirements)
        now, seconds = self._context.clock(), self._stopwatch() - assumed.began
        self._observer.on_decided(self._algorithm.record(queued, decision, now=now, seconds=seconds))
        self._reporter.unschedulable(decision)
        self.withdrawn(assumed)

    def drop_all(self) -> None:
        """Report nobody: another replica leads, and tries the nodes that it reads from the pods first."""
        for assumed, _ in self._rejected.values():
            queued = assumed.queued
            if self._context.queue.get(queued.pod.uid) is queued:
                self._context.cluster.nominate(queued.pod, queued.pod.nominated_node)
        self._rejected.clear()

    def gang_rejected(self, group: Group, pods: int, why: str) -> None:
        """Pods of a gang gave their places back."""
        logger.info("Released assumed pods", extra={"gang": str(group), "pods": pods, "why": why})

    def no_longer_fits(self, assumed: AssumedPod) -> None:
        """The node of a waiting pod changed: the pod is decided again."""
        logger.info(
            "Assumed pod no longer fits its node; scheduling it again",
            extra={"pod": assumed.queued.pod.key, "node": assumed.host},
        )


def waiting_pods(
    context: SchedulerContext, algorithm: LiveAlgorithm, observer: PermitReports
) -> WaitingPods[AssumedPod]:
    """Return the pods that wait at Permit, in the daemon."""
    return WaitingPods(
        context.cluster,
        context.queue,
        algorithm,
        observer=observer,
        clock=context.clock,
    )
