"""What of running gangs is evicted together: members beyond the size one by one, and then all others at once.

A gang below its size cannot work, so no part of what it needs goes without the rest. Members beyond the size are
surplus: those of the lowest priority, of these the youngest, and never one that a role needs. With `evict whole`, and
in a composite group, none is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.preempt.victims import by_importance

GangsOf = Callable[[Frame], Sequence[GangRequirement]]
"""The gangs of a running pod."""


def rows_of(cluster: Cluster, requirement: GangRequirement) -> list[int]:
    """Return the rows of the nodes with members of a gang that do not end; a row with different ones comes again."""
    return [row for _, row in _templates_on(cluster, requirement)]


def members_of(cluster: Cluster, requirement: GangRequirement) -> Iterator[PodInfo]:
    """Yield the members of a gang that are on nodes, with some that end."""
    infos = cluster.nodes.infos
    for template, row in _templates_on(cluster, requirement):
        yield from (pod for pod in cluster.pods_on(infos[row].name).values() if pod.template is template)


def _templates_on(cluster: Cluster, requirement: GangRequirement) -> Iterator[tuple[PodTemplate, int]]:
    counters = cluster.counters
    for group_of, group in requirement.leaves():
        for template in counters.group_templates(group_of, group):
            yield from ((template, row) for row, number in counters.pods_by_row(template).items() if number)


class Bundle(NamedTuple):
    """A running gang, with those that share a pod with it."""

    core: tuple[PodInfo, ...]
    """The members that go together, and then with all others."""
    surplus: tuple[PodInfo, ...]
    """Those that may go one by one, the first one first."""
    needs: Mapping[Group, GangRequirement]
    """By group, what it asks for: of members that ask for several sizes, the largest."""

    @property
    def groups(self) -> Set[Group]:
        """Return its groups."""
        return self.needs.keys()

    @property
    def all(self) -> tuple[PodInfo, ...]:
        """Return all members."""
        return (*self.core, *self.surplus)


class Gangs:
    """The gangs of running pods, on the cluster as it is when one is first asked about."""

    def __init__(
        self,
        cluster: Cluster,
        now: float,
        gangs_of: GangsOf,
        *,
        is_leaving: Callable[[str], bool] = lambda uid: False,
    ) -> None:
        """Know nothing yet.

        Args:
            cluster: with the pods.
            now: Unix seconds.
            gangs_of: returns the gangs of a running pod.
            is_leaving: whether a pod, by its uid, is being evicted.
        """
        self._cluster, self._now, self.gangs_of, self._is_leaving = cluster, now, gangs_of, is_leaving
        self._of: dict[str, Sequence[GangRequirement]] = {}
        self._bundles: dict[Hashable, Bundle] = {}

    def of(self, pod: PodInfo) -> Sequence[GangRequirement]:
        """Return the gangs of a running pod."""
        found = self._of.get(pod.uid)
        if found is None:
            found = self._of[pod.uid] = self.gangs_of(Frame(pod, self._cluster, self._now))
        return found

    def bundle(self, pod: PodInfo) -> Bundle | None:
        """Return the gang of a running pod with those that share a pod with it; None: it is in none, or leaves it."""
        gangs = () if self._leaves(pod) else self.of(pod)
        if not gangs:
            return None
        found = self._bundles.get(gangs[0].group)
        if found is None:
            found = self._bundle(gangs[0])
            self._bundles.update(dict.fromkeys(found.groups, found))
        return found

    def _bundle(self, requirement: GangRequirement) -> Bundle:
        members: dict[str, PodInfo] = {}
        largest, left = {requirement.group: requirement}, [requirement]
        while left:
            for uid, pod in self._members_of(left.pop()).items():
                if uid in members:
                    continue
                members[uid] = pod
                for other in self.of(pod):
                    known = largest.get(other.group)
                    if known is None:
                        left.append(other)
                    if known is None or other.size > known.size:
                        largest[other.group] = other
        surplus = self._surplus(members, largest)
        core = tuple(pod for uid, pod in members.items() if uid not in surplus)
        return Bundle(core, tuple(surplus.values()), largest)

    def _surplus(
        self, members: Mapping[str, PodInfo], requirements: Mapping[Group, GangRequirement]
    ) -> dict[str, PodInfo]:
        """Return the members beyond what their gangs need, by uid, the first to be evicted first."""
        if any(each.evicts_whole or each.tree is not None for each in requirements.values()):
            return {}
        found: dict[str, PodInfo] = {}
        if len(members) <= min(each.size for each in requirements.values()):
            return found  # also without a look at roles
        left = Number(members.values())
        for pod in reversed(by_importance(members.values(), self._now)):
            theirs = [requirements[each.group] for each in self.of(pod)]
            left.remove(pod)
            if all(each.filled(left) >= each.size for each in theirs):
                found[pod.uid] = pod
            else:
                left.add(pod)
        return found

    def can_lose(self, bundle: Bundle, victims: Collection[str]) -> bool:
        """Return whether a gang is complete without some of its members, or has none left."""
        if all(pod.uid in victims for pod in bundle.all):
            return True
        if any(pod.uid in victims for pod in bundle.core):
            left = Number(pod for pod in bundle.all if pod.uid not in victims)
            movable = bool(bundle.surplus)  # none is with `evict whole`
            return movable and all(each.filled(left) >= each.size for each in bundle.needs.values())
        return True

    def _members_of(self, requirement: GangRequirement) -> dict[str, PodInfo]:
        """Return the members of a gang that are on nodes and do not end, by uid."""
        group, group_of = requirement.group, requirement.group_of
        found = {pod.uid: pod for pod in members_of(self._cluster, requirement)}
        for pod in self._cluster.on_unknown_nodes.values():  # their Node is gone, or has not come yet
            if group_of(pod.template) == group:
                found[pod.uid] = pod
        return {uid: pod for uid, pod in found.items() if not self._leaves(pod)}

    def _leaves(self, pod: PodInfo) -> bool:
        return pod.terminating or self._is_leaving(pod.uid)


class Number:
    """How many pods of some are in each group; see `gangs.NumberOf`."""

    def __init__(self, pods: Iterable[PodInfo]) -> None:
        self._pods = {pod.uid: pod for pod in pods}
        self._known: dict[tuple[GroupOf, Group], int] = {}
        """Of the groups that were asked for: a gang, and its roles."""

    def __call__(self, group_of: GroupOf, group: Group) -> int:
        """Return the number of a group."""
        key = group_of, group
        if key not in self._known:
            self._known[key] = sum(group_of(pod.template) == group for pod in self._pods.values())
        return self._known[key]

    def remove(self, pod: PodInfo) -> None:
        """Count a pod no longer."""
        del self._pods[pod.uid]
        self._change(pod, -1)

    def add(self, pod: PodInfo) -> None:
        """Count a pod again."""
        self._pods[pod.uid] = pod
        self._change(pod, 1)

    def _change(self, pod: PodInfo, step: int) -> None:
        for group_of, group in self._known:
            if group_of(pod.template) == group:
                self._known[group_of, group] += step


class EvictedTogether(NamedTuple):
    """Pods that go together or not at all."""

    pods: tuple[PodInfo, ...]
    core: tuple[PodInfo, ...] = ()
    """Of a surplus member of a gang: those that the gang needs. It goes if they go."""


class EvictableGangs:
    """The gangs that running pods are in, for one pod that needs room: what goes together, and what stays."""

    def __init__(self, frame: Frame, gangs_of: GangsOf, *, stays: Callable[[PodInfo], bool]) -> None:
        """Make it for one preemption.

        Args:
            frame: of the pod that preempts; its own gangs stay.
            gangs_of: returns the gangs that the clauses of a pod's policy put it in.
            stays: whether a pod must not be evicted.
        """
        self.gangs_of = gangs_of
        cluster, now = frame.cluster, frame.steady

        def is_leaving(uid: str) -> bool:
            pod = cluster.pods.get(uid)
            return pod is not None and cluster.is_going(pod, now)

        self._gangs, self._stays = Gangs(cluster, frame.now, gangs_of, is_leaving=is_leaving), stays
        self._own = {requirement.group for requirement in gangs_of(frame)}

    def groups(self, pod: PodInfo) -> Sequence[GangRequirement]:
        """Return the gangs of a running pod."""
        return self._gangs.of(pod)

    def unit(self, pod: PodInfo) -> tuple[PodInfo, ...]:
        """Return the pods that are evicted together with one, itself included; none if one of them must stay.

        Of a member that its gang needs, these are the others that it needs; see `with_surplus`.
        """
        bundle = self._gangs.bundle(pod)
        if bundle is None or pod.uid in {each.uid for each in bundle.surplus}:
            is_own = bundle is not None and not self._own.isdisjoint(bundle.groups)
            return () if is_own or self._stays(pod) else (pod,)
        if not self._own.isdisjoint(bundle.groups) or any(map(self._stays, bundle.all)):
            return ()
        return bundle.core

    def units(self, victims: Iterable[PodInfo]) -> Iterator[EvictedTogether]:
        """Yield pods by what is evicted together, in their order; then the surplus that cannot stay without its gang.

        Without those of which one must stay.
        """
        seen: set[str] = set()
        cores: list[tuple[PodInfo, ...]] = []
        for victim in victims:
            unit = self.unit(victim) if victim.uid not in seen else ()
            bundle = self._gangs.bundle(victim)
            is_surplus = bundle is not None and unit is not bundle.core
            if unit:
                yield EvictedTogether(unit, bundle.core if bundle is not None and is_surplus else ())
                seen.update(pod.uid for pod in unit)
                cores += () if is_surplus else (unit,)
        for core in cores:
            more = [pod for pod in self.with_surplus(core) if pod.uid not in seen]
            yield from (EvictedTogether((pod,), core) for pod in reversed(more))

    def with_surplus(self, unit: tuple[PodInfo, ...]) -> tuple[PodInfo, ...]:
        """Return a unit with all that cannot stay without it: the surplus members of its gang."""
        bundle = self._gangs.bundle(unit[0])
        return bundle.all if bundle is not None and unit[0].uid in {each.uid for each in bundle.core} else unit

    def going_with(self, victims: Sequence[PodInfo]) -> tuple[PodInfo, ...]:
        """Return some pods, and all of each gang that would lose a part of what it needs; none if one must stay."""
        uids, found = {victim.uid for victim in victims}, {victim.uid: victim for victim in victims}
        for victim in victims:
            bundle = self._gangs.bundle(victim)
            if bundle is not None and not self._own.isdisjoint(bundle.groups):
                return ()
            if bundle is not None and not self._gangs.can_lose(bundle, uids):
                found |= {pod.uid: pod for pod in bundle.all}
        return () if any(map(self._stays, found.values())) else tuple(found.values())
