"""Which pods must be decided by one replica, one after another, where several share the work."""

from __future__ import annotations

import re

from kube_policy_scheduler.cluster.objects import PodSpec
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, CompiledGrouping, CompiledQuota, CompiledTest
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.policy.pod_groups import COSCHEDULING_LABEL
from kube_policy_scheduler.policy.policy import Policy

COUNTED = "counted"
"""The unit of all pods whose policy looks at pods of any namespace, and of all pods of queues: one replica decides them
all."""
_BY_NAMESPACE = re.compile(r"\bby pod\.namespace to\b")
_HARD = (ClauseKind.REQUIRE, ClauseKind.FILTER)


def unit_of(pod: PodInfo, policy: Policy | None, *, by_pod: bool) -> str:
    """Return the name of the unit that a pod belongs to.

    A pod's namespace, as spread, affinity, gangs and most else look no further; COUNTED, where its policy does, or
    where the pod belongs to a queue: queues lend to each other, so what one may use depends on all of them.

    Args:
        pod: a pending pod.
        policy: the one that governs it.
        by_pod: whether pods that no rule relates to others may be units of their own.
    """
    if policy is not None and any(_crosses_namespaces(clause) for clause in policy.clauses):
        return COUNTED
    rules = policy.profile.queues if policy is not None else None
    if rules is not None and rules.tree.find(pod.template) is not None:
        return COUNTED
    if (
        by_pod
        and COSCHEDULING_LABEL not in pod.labels
        and not _is_related(pod.template.spec)
        and not (policy is not None and policy.gangs)
    ):
        return f"pod/{pod.uid}"
    return f"namespace/{pod.namespace}"


def _crosses_namespaces(clause: CompiledClause) -> bool:
    """Return whether a clause may reject a pod for what is in other namespaces."""
    match clause:
        case CompiledQuota():
            return _BY_NAMESPACE.search(clause.text) is None
        case CompiledGrouping(max_skew=int()):
            return True
        case CompiledTest():
            return clause.kind in _HARD and bool(clause.depends & Depends.CLUSTER)
        case _:
            return False


def _is_related(spec: PodSpec) -> bool:
    """Return whether the pod itself asks for other pods, or for none of them."""
    if spec.scheduling_group is not None:
        return True
    affinity = spec.affinity
    asks = affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    return asks or any(c.when_unsatisfiable == "DoNotSchedule" for c in spec.topology_spread_constraints or ())
