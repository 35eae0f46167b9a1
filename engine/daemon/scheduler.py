"""The loop: take a pod from the queue, decide, assume, bind. Never waits for an answer while it could decide.

Decisions are made one after another in the event loop, in short batches; bindings run concurrently. A decided
pod is assumed: it counts on its node at once, until the watch confirms it or its binding is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, NoReturn, Protocol, assert_never

import numpy as np

from engine.adapters.kube.binding import Bound, Outcome, Refused, Unknown
from engine.cluster.cluster import Cluster
from engine.cluster.pods import PodInfo
from engine.cluster.signals import Signals
from engine.daemon.informer import Informer
from engine.daemon.permitting import Permitting, Reserved
from engine.daemon.preempting import Evictor, PreemptionReporter, evict_all, nominate
from engine.framework.cycle import Cycle, Decision
from engine.framework.evaluation import pre_filter
from engine.framework.events import ClusterEvent
from engine.framework.frame import Frame
from engine.framework.permit import Claim, Group
from engine.framework.preemption import Preemption
from engine.framework.profile import Profile
from engine.framework.queue import Place, QueuedPod, SchedulingQueue, Turn, gates
from engine.framework.refusal_memo import RefusalMemo
from engine.framework.volume_reservation import VolumeReservation, reserve

logger = logging.getLogger(__name__)

BATCH_SECONDS = 0.005
"""Decide for at most this long before the event loop gets a turn: it bounds how late a watch event is read."""
MAX_BINDING = 512
"""Bindings under way; beyond it deciding waits, so that a slow API server is not buried."""
LEFTOVERS_EVERY_SECONDS = 30.0
HELD_EVERY_SECONDS = 5.0
"""How late a pod may be let in that a policy holds until some hour, or while some metric is high."""
STALE_POLL_SECONDS = 0.05
"""How often it is asked whether the view is current again."""
NO_POLICY = "no policy governs this pod: none of the scheduler's policies has a matching `for pods where`"

NOTHING_WAKES: Mapping[str, frozenset[ClusterEvent]] = {NO_POLICY: frozenset()}
"""But other policies, which always do."""


class Binder(Protocol):
    """Tells the API server where a pod goes."""

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> Outcome:
        """Bind a pod; settles doubts (lost answers, conflicts) before it returns."""
        ...


class VolumeBinder(Protocol):
    """Has volumes bound before their pod is."""

    async def bind(self, reservation: VolumeReservation) -> str:
        """Bind all volumes of a reservation; return why that failed, "" where it did not. Never raises."""
        ...


class Reporter(PreemptionReporter, Protocol):
    """Tells people what became of a pod; returns at once, works in the background."""

    def bound(self, pod: PodInfo, node_name: str) -> None:
        """Report success."""
        ...

    def unschedulable(self, decision: Decision) -> None:
        """Report that a pod fits nowhere."""
        ...

    def held(self, pod: PodInfo, why: str) -> None:
        """Report that a pod must wait before it is decided at all."""
        ...

    def failed(self, pod: PodInfo, why: str) -> None:
        """Report an attempt that broke."""
        ...


class Policies(Protocol):
    """Which profile governs which pod."""

    def serves(self, pod: PodInfo) -> bool:
        """Return whether the pod asks for a scheduler that we are."""
        ...

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile that places the pod, or None where no policy governs it."""
        ...

    def hold(self, queued: QueuedPod, frame: Frame) -> str | None:
        """Return why the pod must wait outside the active queue, or None."""
        ...

    def turn(self, queued: QueuedPod, frame: Frame) -> Turn:
        """Return when the pod's turn is."""
        ...

    def claims(self, queued: QueuedPod, frame: Frame) -> tuple[Claim, ...]:
        """Return the groups without which the pod must not bind; raises ValueError where a size has no value."""
        ...


class Observer(Protocol):
    """Counts and times attempts."""

    def attempt(self, result: str, seconds: float) -> None:
        """Note an attempt: scheduled, unschedulable or error."""
        ...


class Scheduler:
    """Places the pods of a queue on the nodes of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        cycle: Cycle,
        binder: Binder,
        evictor: Evictor,
        volumes: VolumeBinder,
        reporter: Reporter,
        observer: Observer,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.cluster = cluster
        self.queue = queue
        self.policies: Policies | None = None
        """None until a policy set is in force: nothing is decided without one."""
        self.signals = Signals.EMPTY
        self.leading = True
        """Whether this replica may bind."""
        self.is_current: Callable[[], bool] = lambda: True
        """Whether the view of the cluster is fit to decide by; where not, it is asked again soon."""
        self._cycle = cycle
        self._binder = binder
        self._evictor = evictor
        self._volumes = volumes
        self._reporter = reporter
        self._observer = observer
        self._clock = clock
        self._stopwatch = stopwatch
        self._wake = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._leftovers_at = self._held_at = 0.0
        self._awaiting_volumes = 0
        """Of those under way, how many wait for a volume controller: a slow one must not hold up other pods."""
        self.informer = Informer(
            cluster,
            queue,
            serves=self._serves,
            clock=clock,
            wake=self._wake.set,
            left=self._left,
            node_changed=self._node_changed,
        )
        self.permitting = Permitting(cluster, queue, self.informer.assumed)
        self._refused = RefusalMemo()

    def _serves(self, pod: PodInfo) -> bool:
        return self.policies is not None and self.policies.serves(pod)

    # --- what decisions rest on ----------------------------------------------------------------------

    def use_policies(self, policies: Policies) -> None:
        """Decide by these from the next pod on; who waits for a group is decided anew."""
        self.policies = policies
        self.queue.use(
            turn=lambda queued: policies.turn(queued, self._frame(queued)),
            hold=lambda queued: policies.hold(queued, self._frame(queued)),
            groups=self._groups,
            short=self._short,
        )
        for reserved in self.permitting.waiting():
            self._withdraw(reserved)
        self.informer.policies_changed()
        self._wake.set()

    def use_signals(self, signals: Signals) -> None:
        """Decide by these from the next pod on."""
        self.signals = signals
        self.informer.signals_changed()

    def lead(self, leading: bool) -> None:
        """Begin or stop to decide."""
        self.leading = leading
        if not leading:
            for reserved in self.permitting.waiting():
                self._withdraw(reserved)
        self._wake.set()

    # --- the loop ------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Schedule for ever; ends by cancellation alone."""
        while True:
            self._wake.clear()
            if not self.is_current():
                await asyncio.sleep(STALE_POLL_SECONDS)
                continue
            self._keep_queue()
            self.decide_batch()
            if self._may_decide() and (self.permitting.has_next() or self.queue.has_active()):
                await asyncio.sleep(0)
            else:
                await self._wait()

    async def _wait(self) -> None:
        # what may not be decided is not due either: it would be waited for in a busy loop
        due = self.queue.next_due() if self._may_decide() else None
        ends = [at - self._clock() for at in (due, self.permitting.permit.next_due()) if at is not None]
        pause = min(HELD_EVERY_SECONDS, *ends, HELD_EVERY_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(pause, 0.001)):
                await self._wake.wait()

    def _keep_queue(self) -> None:
        """Let pods in whose time has come though no event said so."""
        now = self._clock()
        if not 0 <= now - self._leftovers_at < LEFTOVERS_EVERY_SECONDS:
            self._leftovers_at = now
            self.queue.flush_leftovers(now)
        if not 0 <= now - self._held_at < HELD_EVERY_SECONDS:
            self._held_at = now
            self.queue.recheck_held()
            self._report_held(now)
            self.informer.happened(ClusterEvent.CLOCK)
        self._expire(now)

    def _report_held(self, now: float) -> None:
        """Tell why pods are held that have been for a while; of gates the API server tells itself."""
        for queued in self.queue.held():
            self._drop_nomination(queued)
            self._tell_held(queued, now)

    def _tell_held(self, queued: QueuedPod, now: float) -> None:
        why = queued.held_because
        if queued.told != why and now - queued.queued >= HELD_EVERY_SECONDS and gates(queued) is None:
            queued.told = why
            self._reporter.held(queued.pod, why)

    def _drop_nomination(self, queued: QueuedPod) -> None:
        """Keep no room for a pod that will not come to take it."""
        if queued.pod.nominated_node:
            nominate(self.cluster, queued, Preemption(), self._reporter)
            self._reporter.nominated(queued.pod, "")
            self._refused.clear()
            self.informer.happened(ClusterEvent.POD_DELETE)

    def _may_decide(self) -> bool:
        binding = len(self._under_way) - self._awaiting_volumes
        return self.leading and self.policies is not None and binding < MAX_BINDING

    def decide_batch(self) -> int:
        """Decide pods until none is left, the time is up or too many bindings are under way; return how many."""
        end = self._stopwatch() + BATCH_SECONDS
        decided = 0
        while self._may_decide():
            queued = self.permitting.next() or self.queue.pop(self._clock())
            if queued is None:
                break
            self._attempt(queued)
            decided += 1
            if self._stopwatch() > end:
                break
        return decided

    def _attempt(self, queued: QueuedPod) -> None:
        pod, began = queued.pod, self._stopwatch()
        logger.debug("Attempting to schedule pod", extra={"pod": pod.key})
        try:
            claims, why = self._why_held(queued)
            if why is not None:
                self.queue.hold(queued, why, self._clock())
                self._drop_nomination(queued)
                self._tell_held(queued, self._clock())
                return
            decision = self._decide(queued)
            if decision.host is None and claims and (gone := self._make_way(queued, claims)):
                self._return_places(gone, "gave its place back to {by}, which is complete with it", by=queued.pod.key)
                decision = self._decide(queued)
            if claims and (why := self._resting(queued, claims)):
                self._drop_nomination(queued)
                decision = Decision(queued.pod, None, total=self.cluster.nodes.size, message=why)
        except Exception as error:
            logger.exception("attempt broke", extra={"pod": pod.key})
            self._broken(queued, f"internal error: {error!r}; see the scheduler's log", began)
            return
        if decision.host is None:
            if claims and (far := self.permitting.refused(claims)) not in decision.message:
                decision = replace(decision, message=f"{decision.message} {far}.")
            self._observer.attempt("unschedulable", self._stopwatch() - began)
            logger.info("Unable to schedule pod", extra={"pod": pod.key, "why": decision.message})
            self._reporter.unschedulable(decision)
            self._rejected(queued, decision)
            return
        reservation = self._reserve(pod, decision.host) if pod.volumes else None
        if isinstance(reservation, str):
            self._broken(queued, f"volumes on {decision.host} cannot be had: {reservation}", began)
            return
        self.cluster.nominate(pod, "")
        self.cluster.place(pod, decision.host)
        self.informer.assumed[pod.uid] = decision.host
        self._refused.clear()
        reserved = Reserved(queued, decision.host, began, reservation, claims)
        for each in self.permitting.arrive(reserved, self._clock()) if claims else (reserved,):
            self._start(self._bind(each.queued, each.host, each.began, each.reservation))

    def _reserve(self, pod: PodInfo, host: str) -> VolumeReservation | str | None:
        """Assume the pod's volumes on its node; None where nothing is left to do for them."""
        row = self.cluster.nodes.rows[host]
        found = reserve(Frame(pod, self.cluster, self._clock(), rows=np.array([row])))
        return None if isinstance(found, VolumeReservation) and found.empty else found

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a binding or a preemption beside the decisions."""
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a binding broke in an unforeseen way", exc_info=error)
        self._wake.set()

    def _rejected(self, queued: QueuedPod, decision: Decision) -> None:
        found = decision.preemption
        if found is not None and not found.keeps_nomination:
            nominate(self.cluster, queued, found, self._reporter)
            self._refused.clear()
        if found is not None and found.victims:
            self._start(self._preempt(queued, decision.rejectors, found))
        else:
            self._wait_for_events(queued, decision.rejectors)

    def _wait_for_events(self, queued: QueuedPod, rejectors: frozenset[str]) -> None:
        profile = self.policies.profile(queued.pod) if self.policies is not None else None
        if profile is None:
            rejectors, wakes = frozenset((NO_POLICY,)), NOTHING_WAKES
        else:
            wakes = profile.wakes
        self.queue.rejected(queued, rejectors, self._clock(), wakes=wakes)

    async def _preempt(self, queued: QueuedPod, rejectors: frozenset[str], found: Preemption) -> None:
        """Evict, with the pod in flight: the end of a victim is then an event that it will not miss."""
        if await evict_all(self._evictor, queued, found, self._reporter):
            self._wait_for_events(queued, rejectors)
        else:
            self.queue.failed(queued, self._clock())

    def _decide(self, queued: QueuedPod) -> Decision:
        assert self.policies is not None
        pod = queued.pod
        profile = self.policies.profile(pod)
        if profile is None:
            return Decision(pod, None, total=self.cluster.nodes.size, message=NO_POLICY)
        known = self._refused.get(pod, profile, self.informer.changes)
        if known is not None:
            return replace(known, pod=pod)
        decision = self._cycle.decide(self._frame(queued), profile)
        self._refused.note(decision, profile, self.informer.changes)
        return decision

    # --- groups --------------------------------------------------------------------------------------

    def _claims(self, queued: QueuedPod) -> tuple[Claim, ...]:
        return self.policies.claims(queued, self._frame(queued)) if self.policies is not None else ()

    def _groups(self, queued: QueuedPod) -> tuple[Group, ...]:
        try:
            return tuple(claim.group for claim in self._claims(queued))
        except ValueError:
            return ()  # its attempt tells

    def _short(self, queued: QueuedPod) -> str | None:
        return self.permitting.short(self._claims(queued), pending=queued)

    def _why_held(self, queued: QueuedPod) -> tuple[tuple[Claim, ...], str | None]:
        """Return the groups of a pod, and why it cannot be decided yet."""
        try:
            claims = self._claims(queued)
        except ValueError as error:
            return (), str(error)
        return claims, self.permitting.short(claims, pending=queued) if claims else None

    def _resting(self, queued: QueuedPod, claims: tuple[Claim, ...]) -> str | None:
        self._refused.clear()
        try:
            return self.permitting.resting(queued, claims, self._decide, self._clock())
        finally:
            self._refused.clear()

    def _make_way(self, queued: QueuedPod, claims: tuple[Claim, ...]) -> dict[str, Claim]:
        if not len(self.permitting.permit):
            return {}
        self._refused.clear()
        try:
            return self.permitting.make_way(queued, claims, self._decide)
        finally:
            self._refused.clear()

    def _expire(self, now: float) -> None:
        """Have those give their places back whose group was not complete in time."""
        gone = self.permitting.expire(now)
        if gone:
            self._return_places(gone, "not enough members had a place in time")

    def _return_places(self, gone: dict[str, Claim], why: str, *, by: str = "") -> None:
        """Free the places first, then back off with all, and only then wake others: they are to have the room."""
        numbers = {claim.group: self.permitting.placed(claim) for claim in gone.values()}
        returned = [(reserved, gone[uid]) for uid in gone if (reserved := self.permitting.give_back(uid)) is not None]
        for reserved, claim in returned:
            queued = reserved.queued
            text = f'gang "{claim.group}": {numbers[claim.group]} of {claim.size} members had a place'
            decision = Decision(queued.pod, None, message=f"{text}; {why.format(by=by)} ({claim.text})")
            self._observer.attempt("unschedulable", self._stopwatch() - reserved.began)
            self._reporter.unschedulable(decision)
            logger.info(
                "Gave back a place", extra={"pod": queued.pod.key, "node": reserved.host, "why": decision.message}
            )
        # their siblings back off with them, or these would take the room again before anyone else can
        groups = {claim.group for _, claim in returned}
        siblings = [queued for group in groups for queued in self.queue.group(group).values()]
        for queued in siblings:
            if queued.place in (Place.PERMIT, Place.ACTIVE, Place.UNSCHEDULABLE):
                self.queue.returned(queued, self._clock())
        self._refused.clear()
        if returned:
            self.informer.happened(ClusterEvent.POD_DELETE)

    def _withdraw(self, reserved: Reserved) -> None:
        """Have a waiting pod decided anew, at once."""
        if self.permitting.give_back(reserved.queued.pod.uid) is not None:
            self.queue.activate(reserved.queued, self._clock())
            self.informer.happened(ClusterEvent.POD_DELETE)

    def _left(self, uid: str) -> None:
        """Take note that a pod is gone, or on a node."""
        self.permitting.forget(uid)

    def _node_changed(self, name: str) -> None:
        """Look again at the pods that wait with a place on a node: it may be gone, or no longer take them."""
        for reserved in self.permitting.waiting_on(name):
            if not self._still_fits(reserved):
                logger.info("a place is lost", extra={"pod": reserved.queued.pod.key, "node": name})
                self._withdraw(reserved)

    def _still_fits(self, reserved: Reserved) -> bool:
        pod, row = reserved.queued.pod, self.cluster.nodes.rows.get(reserved.host)
        profile = self.policies.profile(pod) if self.policies is not None else None
        if row is None or profile is None:
            return False
        self.cluster.displace(pod.uid)
        try:
            frame = self._frame(reserved.queued).at(np.array([row]))
            prepared = pre_filter(frame, profile.filters)
            if prepared.rejection is not None or (prepared.nodes is not None and reserved.host not in prepared.nodes):
                return False
            return all(bool(plugin.filter(frame, state)[0]) for plugin, state in prepared.active)
        finally:
            self.cluster.place(pod, reserved.host)

    def _frame(self, queued: QueuedPod) -> Frame:
        return Frame(
            queued.pod,
            self.cluster,
            self._clock(),
            signals=self.signals,
            queued=queued.queued,
            attempts=max(0, queued.attempts - 1),
        )

    # --- binding -------------------------------------------------------------------------------------

    async def _bind(self, queued: QueuedPod, host: str, began: float, reservation: VolumeReservation | None) -> None:
        pod = queued.pod
        if reservation is not None and (why := await self._bind_volumes(reservation)):
            self._give_back(pod.uid)
            self._broken(queued, why, began)
            return
        while True:
            outcome = await self._binder.bind(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=host)
            match outcome:
                case Bound():
                    self.queue.done(pod.uid)
                    self._observer.attempt("scheduled", self._stopwatch() - began)
                    logger.info("Successfully bound pod to node", extra={"pod": pod.key, "node": host})
                    self._reporter.bound(pod, host)
                    return
                case Refused(message=why):
                    self._give_back(pod.uid)
                    self._broken(queued, f"binding to {host} was refused: {why}", began)
                    return
                case Unknown(message=why):
                    # It may be bound: its room stays taken until the watch or another try tells.
                    if pod.uid not in self.informer.assumed:
                        return
                    logger.warning("binding in doubt, asking again", extra={"pod": pod.key, "node": host, "why": why})
                case _:
                    assert_never(outcome)

    async def _bind_volumes(self, reservation: VolumeReservation) -> str:
        self._awaiting_volumes += 1
        try:
            return await self._volumes.bind(reservation)
        finally:
            self._awaiting_volumes -= 1

    def _give_back(self, uid: str) -> None:
        """Free the room of a pod that was assumed and is not bound after all."""
        if self.informer.assumed.pop(uid, None) is not None:
            self.cluster.displace(uid)
            self.informer.happened(ClusterEvent.POD_DELETE)

    def _broken(self, queued: QueuedPod, why: str, began: float) -> None:
        self._observer.attempt("error", self._stopwatch() - began)
        self.queue.failed(queued, self._clock())
        if self.queue.get(queued.pod.uid) is queued:
            self._reporter.failed(queued.pod, why)

    async def drained(self) -> None:
        """Wait until no binding and no preemption is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)
