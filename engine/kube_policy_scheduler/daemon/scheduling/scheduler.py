"""The loop: take a pod from the queue, decide, assume, bind. Never waits for an answer while it could decide.

Decisions are made one after another in the event loop, in short batches; bindings run concurrently. A decided
pod is assumed: it counts on its node at once, until the watch confirms it or its binding is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import NoReturn

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.replicas.passing import Nominator, Passing
from kube_policy_scheduler.daemon.scheduling.attempting import Attempting
from kube_policy_scheduler.daemon.scheduling.binding import Bindings
from kube_policy_scheduler.daemon.scheduling.collaborators import Binder, ClaimBinder, Policies, Reporter, VolumeBinder
from kube_policy_scheduler.daemon.scheduling.deciding import Deciding
from kube_policy_scheduler.daemon.scheduling.holding import HELD_EVERY_SECONDS, Holding
from kube_policy_scheduler.daemon.scheduling.permitting import Permitting
from kube_policy_scheduler.daemon.scheduling.preempting import Evictor
from kube_policy_scheduler.daemon.scheduling.rejecting import Rejecting
from kube_policy_scheduler.daemon.watching.freshness import STALE_POLL_SECONDS, AlwaysCurrent, ClusterView
from kube_policy_scheduler.daemon.watching.informer import Informer
from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.queue import QueuedPod, SchedulingQueue

BATCH_SECONDS = 0.002
"""Decide for at most this long before the event loop gets a turn: it bounds how late a watch event is read, and how
late a binding is sent."""
LEFTOVERS_EVERY_SECONDS = 30.0


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
        claims: ClaimBinder,
        reporter: Reporter,
        observer: Observer,
        nominator: Nominator | None = None,
        view: ClusterView | None = None,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        """view: whether what is known of the cluster is fit to decide by; None: it always is."""
        self.cluster = cluster
        self.queue = queue
        self.leading = True
        """Whether this replica may bind."""
        self.view = view or AlwaysCurrent()
        self._clock = clock
        self._stopwatch = stopwatch
        self._wake = asyncio.Event()
        self._leftovers_at = 0.0
        self.deciding = Deciding(cluster, cycle=cycle, clock=clock, changes=lambda: self.informer.changes)
        self.informer = Informer(
            cluster,
            queue,
            serves=self.deciding.serves,
            clock=clock,
            wake=self._wake.set,
            left=lambda uid: self._left(uid),
            placed=lambda pod: self._placed(pod),
            node_changed=lambda name: self.permitting.node_changed(name),
            passed_to=self.deciding.passed_to,
            keeps_room_for=self.deciding.keeps_room_for,
        )
        self.bindings = Bindings(
            cluster,
            queue,
            informer=self.informer,
            binder=binder,
            volumes=volumes,
            claims=claims,
            reporter=reporter,
            observer=observer,
            view=self.view,
            still_fits=self.deciding.still_fits,
            are_complete=lambda claims: self.permitting.are_complete(claims),
            clock=clock,
            stopwatch=stopwatch,
            wake=self._wake.set,
        )
        self.permitting = Permitting(
            cluster,
            queue,
            informer=self.informer,
            deciding=self.deciding,
            reporter=reporter,
            observer=observer,
            clock=clock,
            stopwatch=stopwatch,
        )
        self._rejecting = Rejecting(
            cluster,
            queue,
            deciding=self.deciding,
            bindings=self.bindings,
            permitting=self.permitting,
            evictor=evictor,
            reporter=reporter,
            clock=clock,
        )
        self._holding = Holding(
            cluster,
            queue,
            informer=self.informer,
            deciding=self.deciding,
            permitting=self.permitting,
            reporter=reporter,
            observer=observer,
            stopwatch=stopwatch,
        )

        self.passing = (
            Passing(
                cluster,
                queue,
                informer=self.informer,
                deciding=self.deciding,
                bindings=self.bindings,
                permitting=self.permitting,
                nominator=nominator,
                reporter=reporter,
                clock=clock,
            )
            if nominator is not None
            else None
        )
        """Dealings with other replicas; None where there are none."""
        self._attempting = Attempting(
            cluster,
            queue,
            informer=self.informer,
            deciding=self.deciding,
            bindings=self.bindings,
            permitting=self.permitting,
            rejecting=self._rejecting,
            holding=self._holding,
            passing=self.passing,
            reporter=reporter,
            observer=observer,
            clock=clock,
            stopwatch=stopwatch,
        )

    # --- what decisions rest on ----------------------------------------------------------------------

    def use_policies(self, policies: Policies) -> None:
        """Decide by these from the next pod on; who waits for a group is decided anew."""
        self.deciding.policies = policies
        if self.deciding.sharding is not None:
            self.deciding.sharding.forget_profiles()
        self.cluster.forget_groups()
        frame = self.deciding.frame
        self.queue.use(
            turn=lambda queued: policies.turn(queued, frame),
            hold=lambda queued: policies.hold(queued, frame),
            membership=self.permitting.membership,
            placed=self.permitting.trial.placed,
        )
        self.permitting.withdraw_all()
        self.informer.policies_changed()
        self._wake.set()

    def use_signals(self, signals: Signals) -> None:
        """Decide by these from the next pod on."""
        self.deciding.signals = signals
        self.informer.signals_changed()

    def clock_was_set(self, seconds: float) -> None:
        """Take note that the clock was set by so many seconds: what was to last a second still does."""
        self.queue.clock_was_set(seconds)
        self.informer.assumed.clock_was_set(seconds)
        self.permitting.clock_was_set(seconds)
        self._wake.set()

    def _left(self, uid: str) -> None:
        """Take note that a pod is gone or on a node, before the cluster knows."""
        self.permitting.forget(uid)

    def _placed(self, pod: PodInfo) -> None:
        """Take note that a pod is on a node, before the cluster knows; a shadow compares."""

    def lead(self, leading: bool) -> None:
        """Begin or stop to decide."""
        self.leading = leading
        if not leading:
            self.permitting.withdraw_all()
        self._wake.set()

    # --- the loop ------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Schedule for ever; ends by cancellation alone."""
        while True:
            self._wake.clear()
            if self.leading and not self.view():
                await asyncio.sleep(STALE_POLL_SECONDS)
                continue
            self._keep_queue()
            self.decide_batch()
            if self._has_work():
                await asyncio.sleep(0)
            else:
                await self._wait()

    def _has_work(self) -> bool:
        if self.queue.has_to_ask() or (self.leading and self._holding.is_looking):
            return True
        return self._may_decide() and (self.permitting.has_next() or self.queue.has_active())

    async def _wait(self) -> None:
        # what may not be decided is not due either: it would be waited for in a busy loop
        due = self.queue.next_due() if self._may_decide() else None
        ends = [at - self._clock() for at in (due, self.permitting.next_due()) if at is not None]
        pause = min(HELD_EVERY_SECONDS, *ends, HELD_EVERY_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(pause, 0.001)):
                await self._wake.wait()

    def _keep_queue(self) -> None:
        """Do what is due though no event said so."""
        now = self._clock()
        self.queue.ask_again()
        if not 0 <= now - self._leftovers_at < LEFTOVERS_EVERY_SECONDS:
            self._leftovers_at = now
            self.queue.flush_leftovers(now)
        if self.leading:  # whoever does not decide says nothing of pods either
            self._holding.look(now)
        self.permitting.expire(now)

    def _may_decide(self) -> bool:
        return self.leading and self.deciding.policies is not None and not self.bindings.saturated

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

    def is_under_way(self, uid: str) -> bool:
        """Return whether somebody is at a pod that is in flight."""
        return self.bindings.is_under_way(uid)

    async def drained(self) -> None:
        """Wait until no binding and no preemption is under way."""
        await self.bindings.drained()

    def _attempt(self, queued: QueuedPod) -> None:
        self._attempting.attempt(queued)
