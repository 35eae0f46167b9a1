"""A queue of a test: whose turn it is when, and how that is held against what is expected. Decides no pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from kube_policy_scheduler.framework.active_queue import ActiveQueue
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.queued_pod import QueuedPod, gates
from kube_policy_scheduler.tooling.tester.comparing import Mismatch
from kube_policy_scheduler.tooling.tester.expectation import Turns
from kube_policy_scheduler.tooling.tester.policies import TestedPolicy


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
        return gates(self._queued()) or self.policy.hold_reason(self.frame)

    def enter(self, queue: ActiveQueue) -> None:
        """Let it wait for its turn."""
        queued = self._queued()
        queue.push(queued, self.policy.turn(queued, self.frame))

    def _queued(self) -> QueuedPod:
        frame = self.frame
        return QueuedPod(frame.pod, queued=frame.queued, timestamp=frame.queued, attempts=frame.attempts)


def turns(pods: Sequence[Waiting]) -> tuple[str, ...]:
    """Return the names of the pods that are not held, in the order of their turns."""
    queue = ActiveQueue(count())
    for pod in pods:
        if pod.held() is None:
            pod.enter(queue)
    found = []
    while (queued := queue.pop()) is not None:
        found.append(queued.pod.name)
    return tuple(found)


def compare_turns(expected: Turns, pods: Sequence[Waiting], *, tie_ok: bool) -> Mismatch | None:
    """Return how the turns of a queue differ from what is expected, None where they do not.

    Args:
        expected: of some of its pods.
        pods: in the order in which they came.
        tie_ok: whether who came first may decide between pods that are equal.
    """
    wanted = ", ".join(expected.pods)
    held = [f"{pod.name} is held: {reason}" for pod in pods if pod.name in expected.pods and (reason := pod.held())]
    if held:
        return Mismatch(wanted, "; ".join(held))
    came, turned = _among(expected, turns(pods)), _among(expected, turns(pods[::-1]))
    if came != expected.pods:
        return Mismatch(wanted, ", ".join(came))
    if came != turned and not tie_ok:
        equal = " and ".join(name for name, other in zip(came, turned, strict=True) if name != other)
        return Mismatch(wanted, f"{equal} are equal: who comes first decides; write `tie: ok` where that is meant")
    return None


def _among(expected: Turns, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in expected.pods)
