"""Whether new nodes would help a pod that no node takes: what an autoscaler must know and cannot find out itself.

cluster-autoscaler and Karpenter add nodes for pods with the condition PodScheduled=False and the reason
`Unschedulable`. They simulate Kubernetes' own rules, and know nothing of policies. So the reason is `Unschedulable`
only if no policy rejects the pod on every node that could be added. Kubernetes' own rules never change the reason.

What a clause would say of a new node follows from what it depends on; see `CompiledTest.everywhere`. This is the one
place that judges; the daemon, `why`, tests and simulations call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.quotas.quota_usage import AwaitedPods
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement, Group, NumberOf
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Code

UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition PodScheduled: autoscalers may add nodes for the pod."""
SKIPPED = "SchedulingSkipped"
"""Reason of the condition PodScheduled: autoscalers ignore the pod. YuniKorn uses it for pods over their quota."""
PINNED = "the pod names its nodes"
MOST_TOGETHER = 10_000
"""Pods of one gang that are counted as waiting for new nodes."""
MOST_KINDS = 64
"""Of members with more templates than these, only the number is counted, and not who has which role."""
NOT_NEEDED = "enough other pods of its gang wait for new nodes"


class NewNodes(msgspec.Struct, frozen=True):
    """Whether new nodes would help a pod."""

    help: bool
    by: str = ""
    """The clause or plugin that rejects the pod on every new node."""
    why: str = ""
    """Its reason."""
    is_kubernetes: bool = False
    """Whether that is a rule of Kubernetes, which autoscalers know."""
    for_others: bool = False
    """Whether the pod would be accepted, but for the pods that wait for new nodes already."""

    @property
    def reason(self) -> str:
        """Return the reason of the pod's condition."""
        return UNSCHEDULABLE if self.help or self.is_kubernetes else SKIPPED

    def sentence(self) -> str:
        """Return it for people."""
        if self.help:
            return "New nodes would help."
        return f"New nodes would not help: {self.why}."


HELP = NewNodes(True)


def judge(
    frame: Frame,
    profile: Profile,
    diagnosis: Diagnosis | None = None,
    *,
    together: int = 1,
    awaiting: AwaitedPods | None = None,
) -> NewNodes:
    """Return whether new nodes would help a pod that no node takes.

    Args:
        frame: of the pod, with all rows.
        profile: that places it.
        diagnosis: why no node takes it; None if only its gang was looked at.
        together: how many pods like it must be placed at once.
        awaiting: counts the other pods that new nodes are wanted for.
    """
    for plugin in profile.filters:
        why = plugin.rejects_new_nodes(frame, together, None)
        if why is not None:
            return NewNodes(False, plugin.name, why, is_kubernetes=plugin.default is not None)
        why = plugin.rejects_new_nodes(frame, together, awaiting) if awaiting is not None else None
        if why is not None:
            return NewNodes(False, plugin.name, why, for_others=True)
    return _by_kubernetes(profile, diagnosis)


def _by_kubernetes(profile: Profile, diagnosis: Diagnosis | None) -> NewNodes:
    """Return what Kubernetes' rules say of every node: a plugin rejects the pod as a whole, or nodes by their names."""
    if diagnosis is None:
        return HELP
    rejection = diagnosis.rejection
    if rejection is not None and rejection.code is not Code.ERROR:
        by = next((plugin for plugin in profile.filters if plugin.name == rejection.plugin), None)
        if by is None or by.default is not None:  # clauses and queues have been asked
            return NewNodes(False, rejection.plugin, ", ".join(rejection.reasons), is_kubernetes=True)
    if "" in diagnosis.plugins:
        return NewNodes(False, "NodeAffinity", PINNED, is_kubernetes=True)
    return HELP


FillsPlace: TypeAlias = Callable[[Mapping[PodTemplate, int]], bool]
"""Returns whether a pod fills a place that its gang still needs, beside this many members of each template."""


class Needs(msgspec.Struct, frozen=True):
    """What the gang of a pod still needs."""

    gang: Group | None = None
    """None: the pod is in no gang that needs more pods."""
    together: int = 1
    """How many pods it needs at once."""
    fills: FillsPlace | None = None


def needs_of(requirements: Iterable[GangRequirement], number_of: NumberOf) -> Needs:
    """Return what the gang of a pod that needs the most pods still needs. number_of: counts the pods on nodes."""
    found, most = None, 1
    for requirement in requirements:
        missing = requirement.size - requirement.filled(number_of)
        if missing >= most:
            found, most = requirement, missing
    if found is None:
        return Needs()

    def fills(others: Mapping[PodTemplate, int]) -> bool:
        if len(others) > MOST_KINDS:
            return sum(others.values()) < most

        def counted(group_of: GroupOf, group: Group) -> int:
            return number_of(group_of, group) + sum(n for each, n in others.items() if group_of(each) == group)

        before = found.filled(counted)
        return before < found.size and found.filled(counted, joining=1) > before

    return Needs(found.group, most, fills)


class _Unit(msgspec.Struct):
    """What new nodes are wanted for together: a pod, or all that a gang still needs."""

    pod: PodInfo
    """The pod that counts, as often as needed."""
    number: int = 0
    """How often it counts."""
    members: dict[str, PodTemplate] = msgspec.field(default_factory=dict)
    """The pods that ask, by uid."""
    kinds: Counter[PodTemplate] = msgspec.field(default_factory=Counter)
    """How many of them there are of each template."""


class AwaitingNodes:
    """The pods that no node takes, with whether new nodes would help them.

    Pods of one limit share what is left of it: new nodes are wanted for as many as it admits, first come first served,
    for a gang as a whole or not at all.
    """

    def __init__(self) -> None:
        self._counters = AwaitedPods()
        self._units: dict[Hashable, _Unit] = {}
        """By the uid of a pod, or the name of a gang."""
        self._unit_of: dict[str, Hashable] = {}
        """By uid: pods that new nodes would help."""
        self._without: dict[str, NewNodes] = {}
        """By uid: pods that new nodes would not help."""
        self._behind: dict[str, None] = {}
        """Those that new nodes would help as soon as fewer others wait for them, the longest first."""

    @property
    def numbers(self) -> tuple[int, int]:
        """Return how many pods new nodes would help, and how many not."""
        return len(self._unit_of), len(self._without)

    def judge(
        self,
        frame: Frame,
        profile: Profile | None,
        diagnosis: Diagnosis | None = None,
        *,
        gang: Hashable = None,
        together: int = 1,
        fills: FillsPlace | None = None,
    ) -> NewNodes:
        """Return whether new nodes would help a pod that no node takes, and remember it.

        Of a gang that is not complete, as many pods ask as it needs, and those that it needs; the others once it runs.

        Args:
            frame: of the pod, with all rows.
            profile: that places it; None: no policy governs it.
            diagnosis: why no node takes it.
            gang: that is not complete and starts as a whole; None without one.
            together: how many members the gang still needs.
            fills: see `Needs`; None: any member does.
        """
        pod = frame.pod
        key: Hashable = pod.uid if gang is None else ("gang", gang)
        number = max(1, min(together, MOST_TOGETHER)) if gang is not None else 1
        self._forget_rejection(pod.uid)
        if self._unit_of.get(pod.uid, key) != key:
            self.withdraw(pod.uid)
        unit = self._units.get(key) or _Unit(pod)
        before = unit.number
        has_share = gang is not None and number <= before
        self._count(unit, number if has_share else 0)
        if profile is None:
            found = NewNodes(False, "", "no policy governs the pod")
        elif fills is not None and unit.members and pod.uid not in unit.members and not fills(unit.kinds):
            found = NewNodes(False, "", NOT_NEEDED, for_others=True)
        else:
            found = judge(frame, profile, diagnosis, together=number, awaiting=None if has_share else self._counters)
        if found.help:
            self._units[key] = unit
            self._unit_of[pod.uid] = key
            if pod.uid not in unit.members:
                unit.members[pod.uid] = pod.template
                unit.kinds[pod.template] += 1
            if not has_share:
                unit.pod = pod
                self._count(unit, number)
            return found
        self._count(unit, before)
        self.withdraw(pod.uid)
        self._without[pod.uid] = found
        if found.for_others:
            self._behind[pod.uid] = None
        return found

    def _forget_rejection(self, uid: str) -> None:
        self._without.pop(uid, None)
        self._behind.pop(uid, None)

    def _count(self, unit: _Unit, number: int) -> None:
        for _ in range(unit.number, number):
            self._counters.place(unit.pod, 0)
        for _ in range(number, unit.number):
            self._counters.displace(unit.pod, 0)
        unit.number = number

    @property
    def knows_any(self) -> bool:
        """Return whether there is any pod to withdraw; there is none while the first pods are listed."""
        return bool(self._without or self._unit_of)

    def withdraw(self, uid: str) -> bool:
        """Forget a pod that has a node, is gone or waits for something else; return whether new nodes were wanted."""
        if not self.knows_any:
            return False
        self._forget_rejection(uid)
        key = self._unit_of.pop(uid, None)
        if key is None:
            return False
        unit = self._units[key]
        template = unit.members.pop(uid)
        unit.kinds[template] -= 1
        if not unit.kinds[template]:
            del unit.kinds[template]
        if not unit.members:
            self._count(unit, 0)
            del self._units[key]
        return True

    def next_for_others(self) -> str | None:
        """Return the uid of a pod that new nodes would help as soon as fewer others wait for them; None without one."""
        return next(iter(self._behind), None)

    def clear(self) -> None:
        """Forget all pods: the policies have changed, and each pod is decided again."""
        self._counters.end()
        self._counters = AwaitedPods()
        for kept in (self._units, self._unit_of, self._without, self._behind):
            kept.clear()
