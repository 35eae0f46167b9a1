"""What an examination finds: one line each, of which "could not check" is a kind of its own and never a pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.cluster_state import World


class Status(Enum):
    """How one thing is."""

    OK = "ok"
    WARNING = "warning"
    """Probably not meant."""
    PROBLEM = "problem"
    """Surely not meant: something does not work."""
    UNCHECKED = "could-not-check"
    """Nobody knows."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """Which kind of thing: labels, metrics, filters, …"""
    subject: str
    """What was looked at, as the policies write it."""
    status: Status
    text: str
    place: str = ""
    """`FILE:LINE:COLUMN` where a policy says it."""
    advice: str = ""
    """What to do."""


@dataclass(frozen=True)
class Patient:
    """What is examined."""

    world: World
    policy_set: PolicySet
    now: float
    """Unix seconds."""
    signals: Signals = Signals.EMPTY
    unanswered: Mapping[str, str] = field(default_factory=dict)
    """By query: why nobody knows its value."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By query: why Prometheus itself has no value for it."""
    measured: bool = False
    """Whether there are metrics at all."""
    live_metrics: bool = False
    """Whether they were asked just now, so that they tell of Prometheus' clock."""
    seed: int = 0

    @cached_property
    def governed(self) -> dict[str, list[objects.Pod]]:
        """Return the unfinished pods by the name of the policy that governs them."""
        found: dict[str, list[objects.Pod]] = {policy.name: [] for policy in self.policy_set.policies}
        for pod in self.pods:
            governing = self.policy_set.governing(self.world.cluster.templates.pod(pod))
            if governing is not None:
                found[governing.name].append(pod)
        return found

    @cached_property
    def pods(self) -> list[objects.Pod]:
        """Return all pods that are not done, those that wait first, by name."""
        alive = [pod for pod in self.world.pods.values() if pod.status.phase not in ("Succeeded", "Failed")]
        return sorted(alive, key=lambda pod: (bool(pod.spec.node_name), pod.metadata.namespace, pod.metadata.name))

    def policy(self, name: str) -> Policy:
        """Return a policy by its name."""
        found = self.policy_set.named(name)
        assert found is not None
        return found
