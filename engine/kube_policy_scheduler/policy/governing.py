"""Which of several policies governs a pod, and which gangs its policy says that it is in; answers are remembered."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.policy.pod_groups import is_in_group, pod_group_requirements
from kube_policy_scheduler.policy.policy import Policy

_REMEMBERED_PODS = 16
"""An attempt asks several times for the policy of one pod."""
_REMEMBERED_BYTES = 64 * 2**10
"""Of each; larger ones are not remembered once they are gone, and are asked about each time."""


class _Route(msgspec.Struct, frozen=True):
    """What the pods of one template have in common on their way to a policy. Policies are meant by their numbers."""

    ask: tuple[int, ...]
    """Those that may tell pods of the template apart, in order."""
    otherwise: int | None
    """Governs the pods that none of these takes."""


class Governing:
    """Asks policies in order."""

    def __init__(
        self, policies: Sequence[Policy], *, default_schedulers: frozenset[str], stands_in_as: frozenset[str]
    ) -> None:
        """Ask these.

        Args:
            policies: in the order in which they are asked.
            default_schedulers: the schedulerNames that policies serve which name none.
            stands_in_as: pods of any scheduler are looked at as though they asked for one of these too.
        """
        self._policies = tuple(policies)
        self._default_schedulers, self._stands_in_as = default_schedulers, stands_in_as
        self._nothing = Cluster()
        self._routes: WeakKeyDictionary[PodTemplate, _Route] = WeakKeyDictionary()
        self._last: tuple[PodTemplate | None, _Route] = None, _Route((), None)
        """Of the last pod: an attempt asks three times, and the next pod is often one of the same workload."""
        self._asked: dict[int, tuple[PodInfo, int | None]] = {}
        """The pods last asked about, by identity, whose template alone does not decide."""

    def number(self, pod: PodInfo) -> int | None:
        """Return the number of the policy that governs a pod: of those that match, the first; None where none does.

        What follows from the template is asked once for all of its pods.
        """
        template = pod.template
        if template is not self._last[0]:
            known_route = self._routes.get(template)
            if known_route is None:
                known_route = self._routes[template] = self._route(pod)
            self._last = template, known_route
        route = self._last[1]
        if not route.ask:
            return route.otherwise
        known = self._asked.get(id(pod))
        if known is not None:  # the pod is kept, so the identity is no other's
            return known[1]
        frame = Frame(pod, self._nothing, 0.0)
        found = next((number for number in route.ask if self._policies[number].governs(frame)), route.otherwise)
        if len(self._asked) >= _REMEMBERED_PODS:
            self._asked.clear()
        if pod.size <= _REMEMBERED_BYTES:
            self._asked[id(pod)] = (pod, found)
        return found

    def _route(self, pod: PodInfo) -> _Route:
        frame = Frame(pod, self._nothing, 0.0)
        asked_for = self._stands_in_as | {pod.scheduler_name}
        ask: list[int] = []
        for number, policy in enumerate(self._policies):
            if asked_for.isdisjoint(served_by(policy, self._default_schedulers)):
                continue
            if policy.distinguishes_pods:
                ask.append(number)
            elif policy.governs(frame):
                return _Route(tuple(ask), number)
        return _Route(tuple(ask), None)

    def running_gangs(self, frame: Frame) -> tuple[GangRequirement, ...]:
        """Return the gangs of a running pod by `gang` clauses; none where a size has no value any more."""
        try:
            return self._gangs(frame)
        except ValueError:
            return ()

    def running_requirements(self, frame: Frame) -> tuple[GangRequirement, ...]:
        """Return the gangs and PodGroups of which a running pod may be needed; none where a size has no value any more.

        Of a PodGroup that any one of its pods completes, none is.
        """
        try:
            found, groups = self._gangs(frame), pod_group_requirements(frame) if is_in_group(frame.template) else ()
        except ValueError:
            return ()
        return (*(each for each in groups if each.size > 1 or each.evicts_whole or each.tree is not None), *found)

    def are_in_no_gang(self, pod: PodInfo) -> bool:
        """Return whether no pod of a pod's template is in a gang or a PodGroup, wherever it runs."""
        if is_in_group(pod.template):
            return False
        route = self._routes.get(pod.template)
        if route is None:
            route = self._routes[pod.template] = self._route(pod)
        return not any(self._policies[number].gangs for number in (*route.ask, route.otherwise) if number is not None)

    def _gangs(self, frame: Frame) -> tuple[GangRequirement, ...]:
        number = self.number(frame.pod)
        policy = self._policies[number] if number is not None else None
        return policy.gang_requirements(frame) if policy is not None and policy.gangs else ()


def served_by(policy: Policy, default_schedulers: frozenset[str]) -> frozenset[str]:
    """Return the schedulerNames that a policy serves."""
    return frozenset((policy.scheduler,)) if policy.scheduler is not None else default_schedulers
