"""Gated pods: moved to the active queue when they may be decided; until then their events say why they wait.

Pods that are active, but wait behind the first pod of a strict order, have such events, too.

Events let in most of them. What no event tells is looked for every few seconds, a little at a time: ten thousand pods
that wait hold nobody else up.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf

from kube_policy_scheduler.daemon.observing.observers import PodHeld
from kube_policy_scheduler.daemon.scheduling.context import AssumedPod, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.live_algorithm import LiveAlgorithm
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.groups.waiting_pods import WaitingPods
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, gates
from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)

REPORT_AFTER_SECONDS = 5.0
"""How late a pod may be let in that a policy holds until some hour, or while some metric is high; and how long a pod
waits, held or for its group, before it is reported."""
RENEWED_AT_ONCE = 20
"""Reports in one round about pods that now wait for another pod of their strict order than before: the first pod may
change every second, and there may be ten thousand pods behind it."""
FIRST_IN_A_ROUND = 1000
"""First reports in one round of pods that are held, and of pods behind others; namespaces take turns. Each is two
requests, whose answers come back as events: 50,000 held pods of one tenant would keep the API server, and the
scheduler, busy for most of a minute after each start."""
LOOK_SECONDS = 0.002
"""For this long at a time; then decisions have their turn."""


def waits_behind(first: QueuedPod) -> str:
    """Return why a pod waits that is behind the first pod of its strict order."""
    return f"waiting until {first.pod.key} has a node, which comes first in a strict order"


def in_turns(pods: Iterable[QueuedPod], most: int) -> list[QueuedPod]:
    """Return at most this many of some pods: one of each namespace in turn, in their order."""
    lanes: dict[str, list[QueuedPod]] = {}
    for queued in pods:
        lanes.setdefault(queued.pod.namespace, []).append(queued)
    turns = deque(iter(lane) for lane in lanes.values())
    found: list[QueuedPod] = []
    while turns and len(found) < most:
        lane = turns.popleft()
        if (first := next(lane, None)) is not None:
            found.append(first)
            turns.append(lane)
    return found


class GatedPods:
    """Looks after pods that are held, and tells of those that wait for their group."""

    def __init__(
        self,
        context: SchedulerContext,
        algorithm: LiveAlgorithm,
        waiting_pods: WaitingPods[AssumedPod],
    ) -> None:
        self._context = context
        self._queue, self._stopwatch, self._ledger = context.queue, context.stopwatch, context.cluster.ledger
        self._reporter, self._observer = context.reporter, context.observer
        self._algorithm = algorithm
        self._waiting_pods = waiting_pods
        self._looked_at = -inf
        self._round: Iterator[Callable[[], object]] | None = None

    @property
    def is_looking(self) -> bool:
        """Whether a round has begun and is not over."""
        return self._round is not None

    def look(self, now: Steady) -> None:
        """Begin a round when it is time, and go on with one for a little while."""
        if self._round is None:
            if now - self._looked_at < REPORT_AFTER_SECONDS:
                return
            self._looked_at = now
            self._round = self._go_round(now)
        end = self._stopwatch() + LOOK_SECONDS
        for work in self._round:
            try:
                work()
            except Exception:
                logger.exception("unexpected error while checking a gated pod")
            if self._stopwatch() > end:
                return
        self._round = None

    def _go_round(self, now: Steady) -> Iterator[Callable[[], object]]:
        """Yield what is to be done at once for each pod or group; between two of them anything may have happened."""
        for group in self._queue.groups_missing_members():
            yield partial(self._queue.recheck_group, group)
        for queued in self._queue.held_by_policy():
            yield partial(self._queue.recheck, queued)
        new = self._queue.newly_gated(since=now - REPORT_AFTER_SECONDS)
        nominated = [queued for queued in new if queued.pod.nominated_node]  # they hold their node for nothing
        for queued in (*nominated, *in_turns((q for q in new if not q.pod.nominated_node), FIRST_IN_A_ROUND)):
            if self._queue.get(queued.pod.uid) is not queued or queued.place is not Place.GATED:
                continue
            yield partial(self._report_held, queued, now)
        for queued in self._waiting_pods.unreported(since=now - REPORT_AFTER_SECONDS):
            yield partial(self._report_waiting, queued)
        yield from self._blocked(now)
        self._ledger.note(ClusterEvent.CLOCK)

    def _report_held(self, queued: QueuedPod, now: Steady) -> None:
        self._algorithm.awaiting_nodes.withdraw(queued.pod.uid)
        self.drop_nomination(queued)
        self.report(queued, now)

    def report(self, queued: QueuedPod, now: Steady) -> None:
        """Tell why a pod is held that has been for a while; of gates the API server tells itself."""
        why = queued.gated_because
        if now - queued.queued < REPORT_AFTER_SECONDS or gates(queued) is not None:
            return
        is_known = queued.reported_reason == why
        self._queue.mark_reported(queued)
        if not is_known:
            self._say_held(queued, why, now)

    def _say_held(self, queued: QueuedPod, why: str, now: Steady) -> None:
        self._reporter.held(queued.pod, why)
        profile = self._algorithm.profile(queued.pod)
        self._observer.on_held(
            PodHeld(
                queued.pod,
                why,
                at=now + self._context.cluster.ahead,
                policy=profile.name if profile is not None else None,
                attempts=queued.attempts,
                queued=queued.queued + self._context.cluster.ahead,
            )
        )

    def _blocked(self, now: Steady) -> Iterator[Callable[[], object]]:
        """Yield a report for each pod that waits behind the first pod of a strict order."""
        first_reports = renewed = 0
        for uid, first in self._queue.blocked().items():
            queued = self._queue.get(uid)
            if queued is None or queued.place is not Place.ACTIVE or now - queued.queued < REPORT_AFTER_SECONDS:
                continue
            why = waits_behind(first)
            if queued.reported_reason != why:
                first_reports += not queued.reported_reason
                renewed += bool(queued.reported_reason)
                is_due = renewed <= RENEWED_AT_ONCE if queued.reported_reason else first_reports <= FIRST_IN_A_ROUND
                if is_due:
                    yield partial(self._report_blocked, queued, first, why, now)

    def _report_blocked(self, queued: QueuedPod, first: QueuedPod, why: str, now: Steady) -> None:
        queued.reported_reason = why
        self._say_held(queued, f"{why}. {first.pod.key}: {first.rejected_for}" if first.rejected_for else why, now)

    def _report_waiting(self, queued: QueuedPod) -> None:
        """Tell what a pod waits for that has a place and waits for its group."""
        why = self._waiting_pods.waits_for(queued)
        if why is not None and queued.reported_reason != why:
            queued.reported_reason = why
            self._reporter.waiting(queued.pod, why)

    def drop_nomination(self, queued: QueuedPod) -> None:
        """Keep no room for a pod that will not come to take it."""
        if queued.pod.nominated_node:
            self._context.clear_nomination(queued)
