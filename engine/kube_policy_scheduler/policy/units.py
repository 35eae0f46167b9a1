"""Which pods must be decided by one replica, one after another, where several share the work."""

from __future__ import annotations

import re

from kube_policy_scheduler.cluster.objects import PodSpec
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, CompiledGrouping, CompiledQuota, CompiledTest
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.policy.gangs import concerns
from kube_policy_scheduler.policy.pod_groups import is_in_group
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet

COUNTED = "counted"
"""The unit of all pods whose policy looks at pods of any namespace, of all pods of queues, and of all pods that may be
in a gang with one of these: one replica decides them all."""
_BY_NAMESPACE = re.compile(r"\bby pod\.namespace to\b")
_HARD = (ClauseKind.REQUIRE, ClauseKind.FILTER)


class PodUnits:
    """The units of pods, by the policies in force."""

    def __init__(self, policies: PolicySet) -> None:
        self._policies = policies
        self._crossing = tuple(p for p in policies.policies if any(map(_crosses_namespaces, p.clauses)))

    def unit(self, pod: PodInfo, *, by_pod: bool) -> str:
        """Return the name of the unit that a pending pod belongs to.

        A pod's namespace, as spread, affinity, gangs and most else look no further; COUNTED, where its policy does, or
        where the pod belongs to a queue: queues lend to each other, so what one may use depends on all of them.

        A gang starts as a whole, so all its members are of one unit. They have the namespace and the scheduler in
        common. They may be of different queues, and members of a PodGroup under different policies, too. One member
        does not tell of the others, which may not exist yet. So a member is COUNTED if any pod of its namespace may be.

        by_pod: whether pods that no rule relates to others may be units of their own.
        """
        policy = self._policies.governing(pod)
        if self._is_counted(pod, policy):
            return COUNTED
        of_policy = policy.gangs if policy is not None else ()
        is_member = is_in_group(pod.template) or any(concerns(clause, pod.template) for clause in of_policy)
        if is_member and self._may_be_counted(pod):
            return COUNTED
        if by_pod and not is_member and not _is_related(pod.template.spec):
            return f"pod/{pod.uid}"
        return f"namespace/{pod.namespace}"

    def _is_counted(self, pod: PodInfo, policy: Policy | None) -> bool:
        if policy is None:
            return False
        queues = self._policies.queues
        return policy in self._crossing or (queues is not None and queues.tree.find(pod.template) is not None)

    def _may_be_counted(self, pod: PodInfo) -> bool:
        """Return whether any pod of the namespace and the scheduler of a pod may be counted."""
        queues = self._policies.queues
        return (queues is not None and queues.tree.may_find(pod.template)) or any(
            policy.may_govern(pod.template) and self._policies.serves(policy, pod) for policy in self._crossing
        )


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
    affinity = spec.affinity
    asks = affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    return asks or any(c.when_unsatisfiable == "DoNotSchedule" for c in spec.topology_spread_constraints or ())
