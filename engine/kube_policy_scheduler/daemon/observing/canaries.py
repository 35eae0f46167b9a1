"""What a canary changes, as numbers: what its stable policy would have done with the same pods. Changes nothing.

For a share of the canary's decisions the stable policy decides too, over what the canary saw. It costs as much as a
decision, so as many are compared as a share of the time allows, which in a quiet cluster is every one.

Extenders are not asked again: some of them hand out devices when they are asked. What they said about nodes for the
canary holds for the stable policy, too. If it wants a node about which they said nothing, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Protocol

import msgspec
from prometheus_client.core import CollectorRegistry, Counter, Gauge

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.observing.metrics import Children
from kube_policy_scheduler.daemon.observing.observers import Decided, Observer, PodBound
from kube_policy_scheduler.daemon.observing.quick_metrics import QuickHistogram
from kube_policy_scheduler.framework.evaluate.extender_verdict import ExtenderVerdict
from kube_policy_scheduler.policy.answer import Answer, Unschedulable
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.policy.policy_set import PolicySet

TIME_SHARE = 0.02
"""Of the time, spent on comparing at most."""
MOST_CREDIT_SECONDS = 0.02
"""Saved up while nothing was decided: the first pods of a burst are compared."""


class WouldAnswer(Protocol):
    """Says what would become of a pod; changes nothing."""

    def __call__(self, inputs: DecisionInputs, *, verdict: ExtenderVerdict | None = None) -> Answer:
        """Return the answer. verdict: what extenders said; None: nothing."""


class Comparison(Enum):
    """What the canary did with a pod, beside what its stable policy would have done."""

    SAME_NODE = "same_node"
    OTHER_NODE = "other_node"
    CANARY_ONLY = "canary_only"
    """Only the canary has a node for it."""
    STABLE_ONLY = "stable_only"
    """Only the stable policy has: the canary rejects what was placed before."""
    NEITHER = "neither"


class Canaries(Observer):
    """Compares canaries with their stable policies, and times pods by policy."""

    def __init__(self, registry: CollectorRegistry, *, ask: WouldAnswer, stopwatch: Callable[[], float]) -> None:
        """Make the metrics.

        Args:
            registry: where they are exported.
            ask: what would become of a pod by some rules; must change nothing.
            stopwatch: seconds, never going back.
        """
        self._ask = ask
        self._stopwatch = stopwatch
        self._credit = MOST_CREDIT_SECONDS
        self._credit_at = stopwatch()
        self._policies: PolicySet | None = None
        self._stable: dict[str, Rules] = {}
        """By canary: its stable policy, which evicts nobody."""
        self._comparisons = Children(
            Counter(
                "policy_scheduler_canary_comparisons",
                "Number of canary decisions that were compared with the decision of the stable policy, by result.",
                ("canary", "policy", "result"),
                registry=registry,
            )
        )
        self._shares = Gauge(
            "policy_scheduler_canary_share",
            "Share of the policy's workloads that the canary decides; 1 if only a condition selects the pods.",
            ("canary", "policy"),
            registry=registry,
        )
        self._bound_seconds = Children(
            QuickHistogram(
                "policy_scheduler_pod_scheduling_duration_seconds",
                "Latency in seconds from the moment when a pod first enters the active queue until it is bound, over"
                " all attempts, by policy.",
                ("policy",),
                buckets=tuple(0.01 * 4.0**power for power in range(9)),
                registry=registry,
            )
        )

    def use_policies(self, policies: PolicySet) -> None:
        """Note the policies that decide from now on."""
        self._policies = policies
        names = {policy.name for policy in policies.policies}
        self._bound_seconds.keep(lambda values: values[0] in names)
        self._comparisons.keep(lambda values: names.issuperset(values[:2]))
        self._stable.clear()
        self._shares.clear()
        for canary, share, stable, rules in _pairs(policies):
            self._stable[canary] = rules
            self._shares.labels(canary, stable).set(share)
            for result in Comparison:
                self._comparisons.of(canary, stable, result.value)  # there before its first event

    def on_decided(self, decided: Decided) -> None:
        """Ask the stable policy too, if a canary decided and there is time for it."""
        stable = self._stable.get(decided.policy or "")
        if stable is None or not self._earn_time():
            return
        began = self._stopwatch()
        theirs = self._of_stable(decided, stable)
        self._credit -= self._stopwatch() - began
        if theirs is None:
            return
        result = compared(canary=decided.decision.host, stable=theirs.host)
        self._comparisons.of(decided.policy or "", stable.profile.name, result.value).inc()

    def _of_stable(self, decided: Decided, stable: Rules) -> Answer | None:
        """Return the answer by the stable policy; None if extenders were not asked about the node that it wants."""
        inputs = DecisionInputs.at(decided.frame, stable)
        theirs, verdict = self._ask(inputs), decided.decision.verdict
        if verdict is None or theirs.host is None:
            return theirs
        if theirs.host not in verdict.passed and theirs.host not in verdict.rejected:
            return None
        theirs = self._ask(inputs, verdict=verdict)
        return None if isinstance(theirs, Unschedulable) and theirs.decision.asks_again else theirs

    def on_bound(self, bound: PodBound) -> None:
        """Time a pod that got its node."""
        policy = self._policy_of(bound.pod)
        if policy is not None:
            self._bound_seconds.of(policy).observe(max(0.0, bound.at - bound.queued))

    def _policy_of(self, pod: PodInfo) -> str | None:
        policy = self._policies.governing(pod) if self._policies is not None else None
        return policy.name if policy is not None else None

    def _earn_time(self) -> bool:
        """Add the share of the time since the last call to the credit; return whether there is some."""
        now = self._stopwatch()
        self._credit = min(MOST_CREDIT_SECONDS, self._credit + (now - self._credit_at) * TIME_SHARE)
        self._credit_at = now
        return self._credit > 0


def compared(*, canary: str | None, stable: str | None) -> Comparison:
    """Return how two decisions about one pod differ; None is no node."""
    if canary is None:
        return Comparison.NEITHER if stable is None else Comparison.STABLE_ONLY
    if stable is None:
        return Comparison.CANARY_ONLY
    return Comparison.SAME_NODE if canary == stable else Comparison.OTHER_NODE


def _pairs(policies: PolicySet) -> Iterator[tuple[str, float, str, Rules]]:
    """Yield each canary, its share, its stable policy and the rules of that one, which evicts nobody."""
    for policy in policies.policies:
        if policy.canary is not None and policy.stable is not None:
            rules = Rules(msgspec.structs.replace(policy.stable.profile, preempts=False), policy.stable)
            yield policy.name, policy.canary.share, policy.stable.name, rules
