"""Which rules decide about a pod, under a set of policies or under none. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.decision_inputs import KUBERNETES, Rules
from kube_policy_scheduler.policy.policy_set import PolicySet


@dataclass(frozen=True, slots=True)
class Ruleset:
    """Policies, or Kubernetes' own rules where there are none. Nobody is evicted: what is asked is where pods fit."""

    name: str
    """What the reader calls it: the path it comes from."""
    policy_set: PolicySet | None = None
    sources: tuple[Source, ...] = ()
    _rules: dict[str, Rules] = field(default_factory=dict, repr=False, compare=False)

    def rules(self, pod: PodInfo) -> Rules | None:
        """Return what decides about a pod; None where no policy governs it."""
        policy = self.policy_set.governing(pod) if self.policy_set is not None else None
        if policy is None and self.policy_set is not None:
            return None
        name = policy.name if policy is not None else ""
        if name not in self._rules:
            profile = replace(policy.profile if policy is not None else KUBERNETES.profile, preempts=False)
            self._rules[name] = Rules(profile, policy, self.sources)
        return self._rules[name]


def governed(pod: PodInfo, rulesets: Sequence[Ruleset]) -> bool:
    """Return whether some policy governs a pod; Kubernetes' own rules govern what the others do, or all alone."""
    having = [one for one in rulesets if one.policy_set is not None]
    return not having or any(one.rules(pod) is not None for one in having)
