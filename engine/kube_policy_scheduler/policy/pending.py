"""The pods that wait, as gangs count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.permit import Group, NumberOf


class Pending:
    """The pods that wait, as gangs count them."""

    def __init__(self, pods: Iterable[PodInfo]) -> None:
        self.pods = tuple(pod for pod in pods if not pod.terminating and not pod.terminal)
        self._uids = {pod.uid for pod in self.pods}
        self._templates = Counter(pod.template for pod in self.pods)

    def beside(self, pod: PodInfo) -> NumberOf:
        """Return what counts the members of groups, this pod included."""

        def number(group_of: GroupOf, group: Group) -> int:
            members = sum(number for template, number in self._templates.items() if group_of(template) == group)
            return members + (pod.uid not in self._uids and group_of(pod.template) == group)

        return number
