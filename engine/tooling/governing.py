"""Which rules decide about a pod, under a set of policies or under none. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cluster.pods import PodInfo
from engine.diagnostics import Source
from engine.policy.policy_set import PolicySet
from engine.tooling.world import KUBERNETES, Recompile, Rules


@dataclass(frozen=True, slots=True)
class Ruleset:
    """Policies, or Kubernetes' own rules where there are none."""

    name: str
    """What the reader calls it: the path it comes from."""
    policy_set: PolicySet | None = None
    sources: tuple[Source, ...] = ()
    recompile: Recompile | None = None

    def rules(self, pod: PodInfo) -> Rules | None:
        """Return what decides about a pod; None where no policy governs it."""
        if self.policy_set is None:
            return KUBERNETES
        policy = self.policy_set.governing(pod)
        if policy is None:
            return None
        if self.recompile is None:
            return Rules(policy.profile, policy, self.sources)
        return Rules(policy.profile, policy, self.sources, self.recompile)


def governed(pod: PodInfo, rulesets: Sequence[Ruleset]) -> bool:
    """Return whether some policy governs a pod; Kubernetes' own rules govern what the others do, or all alone."""
    having = [one for one in rulesets if one.policy_set is not None]
    return not having or any(one.rules(pod) is not None for one in having)
