"""Who gives way: the pods that are evicted for the pending pods of a cluster under two sets of policies.

Here the pods on nodes stay where they are. The pending pods are decided in virtual time, as a simulation does it, so
that `reclaim after`, gangs and pods that come back are as in the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaTree
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.tooling.impact.replay import Step
from kube_policy_scheduler.tooling.rulesets import Ruleset
from kube_policy_scheduler.tooling.simulation.run import Eviction, SimulatedCluster, Waiting
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario

LEAST_SECONDS = 600.0
"""For how long pending pods are decided; longer if a `reclaim` waits for longer."""
MOST_PENDING = 5_000
"""Pending pods that are decided, in their order."""


@dataclass(frozen=True, slots=True)
class GivesWay:
    """A pod that is evicted."""

    pod: str
    """`namespace/name`."""
    node: str
    """Where it runs."""
    by: str
    """The pod that gets the room, or a member of the gang that does; "": nobody, see `why`."""
    queue: str = ""
    """Of the evicted pod; "" if it belongs to none."""
    by_queue: str = ""
    after_seconds: float = 0.0
    why: str = ""
    """Why it has to leave though nobody gets the room."""


@dataclass(frozen=True, slots=True)
class Evictions:
    """The evictions under both sets of policies."""

    old: tuple[GivesWay, ...]
    new: tuple[GivesWay, ...]
    pending: int
    """Pods that were decided."""
    left: int = 0
    """Pending pods that were not, because there are too many."""

    @property
    def more(self) -> tuple[GivesWay, ...]:
        """Return those that are evicted only under the new policies."""
        before = {each.pod for each in self.old}
        return tuple(each for each in self.new if each.pod not in before)

    @property
    def fewer(self) -> tuple[GivesWay, ...]:
        """Return those that are evicted only under the old policies."""
        after = {each.pod for each in self.new}
        return tuple(each for each in self.old if each.pod not in after)


def evictions(
    things: Sequence[Any],
    old: Ruleset,
    new: Ruleset,
    *,
    steps: Sequence[Step],
    now: float,
    signals: Signals = Signals.EMPTY,
    seed: int = 0,
    kubernetes: KubernetesRules = DEFAULT_RULES,
) -> Evictions:
    """Decide the pending pods of a cluster under both sets; pods on nodes stay where they are.

    Args:
        things: API objects of the cluster.
        old: the policies in force.
        new: those that would be.
        steps: pods of the cluster that some policy governs.
        now: Unix seconds.
        signals: the metrics that both read.
        seed: draws among nodes that are equally good.
        kubernetes: by whose rules.
    """
    pending = [step for step in steps if not step.was]
    taken = pending[:MOST_PENDING]
    keys = {step.key for step in taken}
    standing = [
        thing
        for thing in things
        if not isinstance(thing, objects.Pod) or f"{thing.metadata.namespace}/{thing.metadata.name}" not in keys
    ]
    scenario = Scenario(
        standing,
        [Arrival(0.0, step.pod.metadata.name, step.pod) for step in taken],
        starts_at=now,
        kubernetes=kubernetes,
    )
    before, after = (
        _evicted(scenario, side, signals, seed=seed) if taken or _evicts_for_nobody(side) else () for side in (old, new)
    )
    return Evictions(before, after, len(taken), len(pending) - len(taken))


def _evicts_for_nobody(side: Ruleset) -> bool:
    """Return whether pods may have to leave though no pod waits: those of a queue above its `max`."""
    return side.policy_set is not None and side.policy_set.queues is not None and bool(side.policy_set.queues.above_max)


def _evicted(scenario: Scenario, side: Ruleset, signals: Signals, *, seed: int) -> tuple[GivesWay, ...]:
    rules = side.policy_set.queues if side.policy_set is not None else None
    patience = max((rule.after_seconds for rule in rules.reclaims), default=0.0) if rules is not None else 0.0
    scenario = replace(scenario, stops_after=max(LEAST_SECONDS, 2 * patience))
    variant = PolicyVariant(side.name, side.policy_set, signals)
    simulated = SimulatedCluster(scenario, variant, seed=seed)
    Waiting(simulated).run(progress=lambda done: None)
    found: dict[str, GivesWay] = {}
    for eviction in simulated.tally.evictions:
        if eviction.ran_before:  # not one that started in the meantime, or came back
            made = _gives_way(eviction, variant.tree, since=scenario.starts_at)
            found.setdefault(made.pod, made)
    return tuple(found.values())


def _gives_way(eviction: Eviction, tree: QuotaTree | None, *, since: float) -> GivesWay:
    return GivesWay(
        eviction.victim.key,
        eviction.ran_on,
        eviction.by.key if eviction.by is not None else "",
        _queue(tree, eviction.victim),
        _queue(tree, eviction.by) if eviction.by is not None else "",
        eviction.at - since,
        eviction.why,
    )


def _queue(tree: QuotaTree | None, pod: PodInfo) -> str:
    found = tree.find(pod.template) if tree is not None else None
    if tree is None or found is None:
        return ""
    place, key = found
    return tree.queues[place].name + (f"/{key}" if key is not None else "")
