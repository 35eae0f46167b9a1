"""The queue of a case: its pods, and in which order they would be decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.queue.active_queue import ActiveQueue
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.policy.answer import held as held_of
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.tester.outcome import TestedPolicy


@dataclass(frozen=True, slots=True)
class Waiting:
    """One pod of a queue, and what governs it."""

    policy: TestedPolicy
    frame: Frame

    @property
    def name(self) -> str:
        """Return the pod's name."""
        return self.frame.pod.name

    def held(self) -> str | None:
        """Return why it waits outside the queue, or None."""
        held = held_of(DecisionInputs.at(self.frame, self.policy.rules))
        return held.reason if held is not None else None

    def enter(self, queue: ActiveQueue) -> None:
        """Let it wait in a queue."""
        queued = self._queued()
        queue.push(queued, self.policy.position(queued, self.frame))

    def _queued(self) -> QueuedPod:
        frame = self.frame
        queued = Steady(frame.queued)
        return QueuedPod(frame.pod, queued=queued, timestamp=queued, attempts=frame.attempts)


def positions(pods: Sequence[Waiting]) -> tuple[str, ...]:
    """Return the names of the pods that are not held, in the order in which they would be decided."""
    queue = ActiveQueue(count())
    for pod in pods:
        if pod.held() is None:
            pod.enter(queue)
    found = []
    now = Steady(pods[0].frame.now if pods else 0.0)
    while (queued := queue.pop(now)) is not None:
        found.append(queued.pod.name)
    return tuple(found)
