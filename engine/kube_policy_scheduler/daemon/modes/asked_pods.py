"""The pods that kube-scheduler asks about: what is known of each, who judges it, what was said. Judges nothing."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.observing.observers import Answered, Observer
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.extension import own_profile
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.decision_record import Outcome

logger = logging.getLogger(__name__)

KNOWN_PODS = 10_000
"""Pods kept from the requests about them: more than kube-scheduler decides while one of them is being bound."""
KNOWN_BYTES = 32 * 2**20
"""What their authors wrote, together."""


@dataclass(slots=True)
class AskedPod:
    """A pod that we were asked about."""

    pod: PodInfo
    since: Steady
    """When the first request came."""
    attempts: int = 0
    filtered: dict[str, Any] = field(default_factory=dict)
    """How many nodes its last `filter` was about, how many passed, and why the others did not: what is asked next is
    about the same attempt."""


class AskedPods:
    """The last pods that we were asked about, who judges them, and what was said."""

    def __init__(self, scheduler: Scheduler, *, observer: Observer, kubernetes_rules: bool) -> None:
        """Arguments as of `Extender`."""
        self._cluster = scheduler.cluster
        self._algorithm = scheduler.algorithm
        self._observer = observer
        self._clock = scheduler.context.clock
        self._kubernetes_rules = kubernetes_rules
        self._pods: KeptView[str, AskedPod] = KeptView(
            KeptBytes(KNOWN_BYTES), most=KNOWN_PODS, size_of=lambda uid, known: known.pod.size
        )
        self._profiles: WeakKeyDictionary[Policy, Profile] = WeakKeyDictionary()

    # --- who -----------------------------------------------------------------------------------------

    def meet(self, pod: objects.Pod) -> AskedPod:
        """Return a pod as a request shows it, with what is known of it."""
        info = self._cluster.templates.pod(pod)
        known = self._pods.get(info.uid) or self.add(info)
        known.pod = info
        return known

    def add(self, pod: PodInfo) -> AskedPod:
        """Keep a pod that was not asked about before."""
        known = AskedPod(pod, self._clock())
        self._pods.set(pod.uid, known)
        return known

    def get(self, uid: str) -> AskedPod | None:
        """Return a pod that we were asked about; None for one that is not known, or not any more."""
        return self._pods.get(uid)

    # --- by what it is judged ------------------------------------------------------------------------

    def policy(self, pod: PodInfo) -> Policy | None:
        """Return the policy that governs a pod, None where none does; there must be policies in force."""
        policies = self._algorithm.policies
        assert isinstance(policies, LivePolicies), "not ready"
        return policies.policy_set.governing(pod)

    def profile(self, policy: Policy) -> Profile:
        """Return the plugins that are asked about the pods of a policy."""
        found = self._profiles.get(policy)
        if found is None:
            found = policy.profile if self._kubernetes_rules else own_profile(policy.profile)
            self._profiles[policy] = found
            unused = [word for word, is_there in (("gang", policy.gangs), ("order", policy.orders)) if is_there]
            for word in unused:
                logger.warning("an extender cannot use `%s`: policy %s is evaluated without it", word, policy.name)
        return found

    def frame(self, known: AskedPod) -> Frame:
        """Return what rules may look at for a pod, now."""
        return Frame(
            known.pod,
            self._cluster,
            self._clock() + self._cluster.ahead,
            signals=self._algorithm.signals,
            queued=known.since + self._cluster.ahead,
            attempts=max(0, known.attempts - 1),
            ahead=self._cluster.ahead,
        )

    # --- what was said -------------------------------------------------------------------------------

    def report(
        self,
        known: AskedPod,
        verb: str,
        outcome: Outcome,
        *,
        profile: Profile | None = None,
        rows: IntArray | None = None,
        **answer: Any,
    ) -> None:
        """Report an answer to the observer; what follows a `filter` is reported with what that said.

        Args:
            known: the pod.
            verb: that was asked.
            outcome: of this question.
            profile: the plugins that were asked, None where none were.
            rows: `int64[nodes]`, the nodes that were asked about; -1 for those we have not seen.
            answer: fields of `Answered`.
        """
        policy = self.policy(known.pod)
        if verb == "filter":
            known.filtered = {name: answer.get(name, ()) for name in ("nodes", "passed", "reasons")}
        answer = known.filtered | answer
        answered = Answered(
            known.pod,
            verb,
            outcome,
            policy=policy.name if policy is not None else None,
            profile=profile,
            rows=rows[rows >= 0] if rows is not None else None,
            frame=self.frame(known),
            attempts=max(1, known.attempts),
            queued=known.since + self._cluster.ahead,
            **answer,
        )
        self._observer.on_answered(answered)
