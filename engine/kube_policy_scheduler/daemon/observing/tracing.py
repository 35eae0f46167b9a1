"""Attempts to schedule pods as spans: waiting, deciding, binding. Sends nothing itself.

A pod's attempts are one trace, whose number is the pod's UID: who knows the pod finds its trace. Whether it is traced
follows from its UID too: with all attempts, by every replica, or not at all.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from kube_policy_scheduler.adapters.open_telemetry import FinishedSpan
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.observing.observers import AttemptFailed, ClaimsBound, Decided, Observer, PodBound

MOST_UNDER_WAY = 4096
"""Decisions whose binding is awaited; those of a gang may wait for minutes."""
MOST_BYTES = 32 * 2**20
"""Of the pods that these decisions are about."""
MOST_PER_SECOND = 50.0
"""Attempts that are sent: making their spans takes up to a millisecond each, in which nothing is decided."""
MOST_AT_ONCE = 200.0
"""Attempts that are sent of a burst after a quiet time."""
MOST_MESSAGE = 500
"""Characters of a reason."""


class SpanSink(Protocol):
    """Takes spans."""

    def send(self, span: FinishedSpan, *, trace: str) -> None:
        """Take a span; must return at once."""


class DecisionTracer(Observer):
    """Makes a span of each attempt for some of the pods."""

    def __init__(self, sink: SpanSink, *, share: float) -> None:
        """Trace a share of the pods, 0 to 1."""
        self._sink = sink
        self._below = share * 2.0**64
        self._under_way: KeptView[str, Decided] = KeptView(
            KeptBytes(MOST_BYTES), most=MOST_UNDER_WAY, size_of=lambda uid, decided: decided.decision.pod.size
        )
        """By uid."""
        self._claims: KeptView[str, ClaimsBound] = KeptView(
            KeptBytes(MOST_BYTES), most=MOST_UNDER_WAY, size_of=lambda uid, bound: bound.pod.size
        )
        """By uid."""
        self._left = MOST_AT_ONCE
        """Attempts that may be sent now."""
        self._left_at = 0.0

    def on_decided(self, decided: Decided) -> None:
        """Send the attempt where it ends here; else wait for its binding."""
        pod = decided.decision.pod
        if not self._is_traced(pod):
            return
        if decided.decision.host is None:
            self._under_way.pop(pod.uid)
            self._send(decided, "unschedulable", ended=decided.at)
            return
        self._under_way.set(pod.uid, decided)

    def on_bound(self, bound: PodBound) -> None:
        """Send the attempt that came to its end."""
        decided = self._under_way.pop(bound.pod.uid)
        if decided is not None:
            self._send(decided, "scheduled", ended=bound.at)

    def on_claims_bound(self, bound: ClaimsBound) -> None:
        """Keep it for the attempt that it is a part of."""
        if self._is_traced(bound.pod):
            self._claims.set(bound.pod.uid, bound)

    def on_failed(self, failed: AttemptFailed) -> None:
        """Send the attempt that broke."""
        if not self._is_traced(failed.pod):
            return
        decided = self._under_way.pop(failed.pod.uid)
        why = failed.why[:MOST_MESSAGE]
        if decided is not None:
            self._send(decided, "error", ended=failed.at, error=why)
            return
        attributes = _of_pod(failed.pod) | {"scheduler.result": "error"}
        began = failed.at - failed.seconds
        self._pass_on(FinishedSpan("schedule pod", began, failed.at, attributes, error=why), failed.pod)

    def _is_traced(self, pod: PodInfo) -> bool:
        digest = blake2b(pod.uid.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self._below

    def _send(self, decided: Decided, result: str, *, ended: float, error: str = "") -> None:
        decision = decided.decision
        pod, began = decision.pod, decided.at - decided.seconds
        entered = min(began, decided.entered or decided.queued)
        decide: dict[str, str | int | float | bool] = {
            "scheduler.nodes": decision.total,
            "scheduler.feasible_nodes": decision.feasible,
        }
        if decision.message:
            decide["scheduler.message"] = decision.message[:MOST_MESSAGE]
        children = [
            FinishedSpan("wait in queue", entered, began, {}),
            FinishedSpan("decide", began, decided.at, decide),
        ]
        attributes = _of_pod(pod) | {
            "scheduler.result": result,
            "scheduler.policy": decided.policy or "",
            "scheduler.attempt": decided.attempts,
        }
        if decision.host is not None:
            attributes["k8s.node.name"] = decision.host
            name = "wait for group and bind" if decided.waits else "bind"
            if (bound := self._claims.pop(pod.uid)) is not None:
                claims: dict[str, str | int | float | bool] = {"scheduler.claims": bound.claims}
                if bound.conditions:
                    claims["scheduler.binding_conditions"] = bound.conditions
                why = bound.why[:MOST_MESSAGE]
                children.append(
                    FinishedSpan("bind claims", bound.began, bound.began + bound.seconds, claims, error=why)
                )
            children.append(FinishedSpan(name, decided.at, ended, {"k8s.node.name": decision.host}, error=error))
        span = FinishedSpan("schedule pod", entered, ended, attributes, tuple(children), error)
        self._pass_on(span, pod)

    def _pass_on(self, span: FinishedSpan, pod: PodInfo) -> None:
        """Send a span, unless there are too many of them."""
        passed = max(0.0, span.ended - self._left_at)
        self._left = min(MOST_AT_ONCE, self._left + passed * MOST_PER_SECOND)
        self._left_at = span.ended
        if self._left >= 1.0:
            self._left -= 1.0
            self._sink.send(span, trace=trace_of(pod))


def trace_of(pod: PodInfo) -> str:
    """Return the number of a pod's trace: its UID without dashes, or a hash of a UID that is none of Kubernetes'."""
    digits = pod.uid.replace("-", "").lower()
    if len(digits) == 32 and digits.strip("0") and all(digit in "0123456789abcdef" for digit in digits):
        return digits
    return blake2b(pod.uid.encode(), digest_size=16).hexdigest()


def _of_pod(pod: PodInfo) -> dict[str, str | int | float | bool]:
    return {"k8s.pod.name": pod.name, "k8s.namespace.name": pod.namespace, "k8s.pod.uid": pod.uid}
