"""The pods that wait, as gangs count them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.gangs import Group


class Pending:
    """The pods that wait, as gangs count them."""

    def __init__(self, pods: Iterable[PodInfo]) -> None:
        self.pods = tuple(pod for pod in pods if not pod.terminating and not pod.terminal)
        self._by_template: dict[PodTemplate, list[PodInfo]] = {}
        for pod in self.pods:
            self._by_template.setdefault(pod.template, []).append(pod)

    def members(self, group_of: GroupOf, group: Group) -> Iterator[PodInfo]:
        """Yield those of a group."""
        for template, pods in self._by_template.items():
            if group_of(template) == group:
                yield from pods
