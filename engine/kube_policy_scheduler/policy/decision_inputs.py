"""The inputs of one decision: the pod, the cluster, what decides, the metrics and the clock.

Every command that decides again (test, why, impact, capture, doctor, drift, …) makes one of these, and asks `answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.evaluate.evaluation import Evaluation, evaluate
from kube_policy_scheduler.framework.evaluate.probe import FilterProbe, probe
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.plugin import FilterPlugin
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.lang.compiling.columns import full
from kube_policy_scheduler.policy.clauses import FilterClause, RequireClause
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.policy.pod_groups import is_in_group, pod_group_requirements
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet

Recompile: TypeAlias = Callable[[Sequence[Source]], PolicySet | None]
"""From changed sources to policies; None where they have errors."""


def _cannot_recompile(sources: Sequence[Source]) -> PolicySet | None:
    return None


class Rules(msgspec.Struct, frozen=True):
    """What decides about a pod: one policy, or plain Kubernetes."""

    profile: Profile
    policy: Policy | None = None
    sources: tuple[Source, ...] = ()
    """The texts of all policies, for trying changes of them."""
    recompile: Recompile = _cannot_recompile
    policies: PolicySet | None = None
    """The set that the policy is of, which tells the pods that wait in its orders; None: nobody else does."""

    def edited(self, source: Source, text: str) -> Rules | None:
        """Return the rules with another text of one source; None where the result is not a policy."""
        if self.policy is None or source not in self.sources:
            return None
        sources = tuple(Source(one.name, text) if one == source else one for one in self.sources)
        made = self.recompile(sources)
        policy = made.named(self.policy.name) if made is not None else None
        return None if policy is None else Rules(policy.profile, policy, sources, self.recompile, made)


KUBERNETES = Rules(kubernetes_profile())
"""Without policies."""


class DecisionInputs(msgspec.Struct, frozen=True):
    """Everything that one decision follows from."""

    pod: PodInfo
    """As it waits: without a node."""
    cluster: Cluster
    rules: Rules
    signals: Signals = Signals.EMPTY
    now: float = 0.0
    """Unix seconds."""
    seed: int = 0
    queued: float = 0.0
    """Unix seconds at which the pod first entered the queue."""
    attempts: int = 0
    """Attempts to schedule the pod before this one."""
    manifest: objects.Pod | None = None
    """The pod as the API server has it; only changes of its spec need it."""
    pending: Pending | None = None
    """The pods that wait, for gangs and strict orders; None: not known, so that no gang lacks pods."""

    @classmethod
    def of(
        cls,
        pod: objects.Pod,
        cluster: Cluster,
        rules: Rules,
        *,
        signals: Signals = Signals.EMPTY,
        now: float = 0.0,
        seed: int = 0,
        queued: float | None = None,
        pending: Pending | None = None,
    ) -> DecisionInputs:
        """Return the inputs for a pod of the API; queued: None for when it was created."""
        info = cluster.templates.pod(pod)
        queued = info.created if queued is None else queued
        return cls(info, cluster, rules, signals, now, seed, queued, manifest=pod, pending=pending)

    @classmethod
    def at(cls, frame: Frame, rules: Rules, *, seed: int = 0) -> DecisionInputs:
        """Return the inputs of a decision about what a frame looks at."""
        pod, cluster, signals, now = frame.pod, frame.cluster, frame.signals, frame.now
        return cls(pod, cluster, rules, signals, now, seed, frame.queued, frame.attempts)

    @property
    def profile(self) -> Profile:
        """Return the plugins that decide."""
        return self.rules.profile

    def frame(self) -> Frame:
        """Return what plugins look at: the pod and all nodes."""
        return Frame(
            self.pod, self.cluster, self.now, signals=self.signals, queued=self.queued, attempts=self.attempts
        )  # fmt: skip

    def under(self, profile: Profile) -> DecisionInputs:
        """Return the same decision by other plugins."""
        return msgspec.structs.replace(self, rules=msgspec.structs.replace(self.rules, profile=profile))

    def of_other(self, pod: PodInfo) -> DecisionInputs | None:
        """Return the inputs for another pod that waits, by its own rules; None where no policy governs it."""
        rules, policies = self.rules, self.rules.policies
        policy = policies.governing(pod) if policies is not None else rules.policy
        if policy is not rules.policy:
            if policy is None:
                return None
            rules = msgspec.structs.replace(rules, profile=policy.profile, policy=policy)
        return msgspec.structs.replace(self, pod=pod, rules=rules, queued=pod.created, attempts=0, manifest=None)

    def rivals(self) -> list[PodInfo]:
        """Return the other pods that wait and that the same policy governs."""
        policies, pending = self.rules.policies, self.pending
        if pending is None:
            return []
        mine = (pod for pod in pending.pods if pod.uid != self.pod.uid)
        if policies is None:
            return list(mine)
        return [pod for pod in mine if policies.governing(pod) is self.rules.policy]

    def gang_requirements(self) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind; see `PolicySet.gang_requirements`."""
        policy, frame = self.rules.policy, self.frame()
        groups = pod_group_requirements(frame) if is_in_group(self.pod.template) else ()
        return (*groups, *policy.gang_requirements(frame)) if policy is not None and policy.gangs else groups

    def evaluate(self) -> Evaluation:
        """Return what all plugins together say, node by node."""
        return evaluate(self.frame(), self.profile)

    def probe(self, plugin: FilterPlugin) -> FilterProbe:
        """Ask one filter alone."""
        return probe(self.frame(), plugin)

    def with_spec(self, spec: objects.PodSpec) -> DecisionInputs:
        """Return the inputs with another spec of the pod; it needs the `manifest`."""
        assert self.manifest is not None
        changed = msgspec.structs.replace(self.manifest, spec=spec)
        return msgspec.structs.replace(self, pod=self.cluster.templates.pod(changed), manifest=changed)


def unbound(pod: objects.Pod, *, scheduler: str | None = None, keep_status: bool = True) -> objects.Pod:
    """Return a bound pod as it was before it had a node.

    Args:
        pod: the pod.
        scheduler: the scheduler that it then asks for; None for its own.
        keep_status: whether it keeps its status, with the node that it is nominated to; it always keeps the names of
            the claims that were made for it.
    """
    spec = msgspec.structs.replace(pod.spec, node_name="", scheduler_name=scheduler or pod.spec.scheduler_name)
    status = pod.status
    if not keep_status:
        status = objects.PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses)
    return msgspec.structs.replace(pod, spec=spec, status=status)


def undefined_nodes(plugin: FilterPlugin, frame: Frame) -> BoolArray | None:
    """Return `bool[rows]`: the nodes that a clause rejects as a value is missing; None for what is not a clause."""
    if isinstance(plugin, FilterClause | RequireClause) and plugin.clause.missing is not None:
        missing: BoolArray = full(plugin.clause.missing(frame), frame.size)
        return missing
    return None
