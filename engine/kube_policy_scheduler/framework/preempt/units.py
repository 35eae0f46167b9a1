"""The units of queues that run or are nominated, and do not leave: pods, gangs at their size, members beyond that."""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable, Iterable, Sequence

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.quotas.guarantees import WALKED_AT_ONCE, Parts, Unit
from kube_policy_scheduler.cluster.quotas.quota_usage import Quota, QuotaUsage
from kube_policy_scheduler.cluster.requests import PodRequests
from kube_policy_scheduler.cluster.steps import now as at_once
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.gang_units import Bundle, Gangs
from kube_policy_scheduler.framework.preempt.whole_groups import in_group_that_stays
from kube_policy_scheduler.framework.quota import AboveMaxRule, QuotaRules, ReclaimRule, parts_of


def priority_of(pods: Iterable[PodInfo]) -> int:
    """Return the highest priority of some pods."""
    return max(pod.priority for pod in pods)


class _Alike(msgspec.Struct, frozen=True, eq=False):
    """What the running pods of a template have in common."""

    demand: PodRequests | None
    """Those with this one count for `parts`; of others it is asked one by one."""
    parts: Parts
    priority: int
    in_no_gang: bool


class QueueUnits:
    """The units of queues, on the cluster as it is when a queue is first asked about."""

    def __init__(
        self,
        cluster: Cluster,
        usage: QuotaUsage,
        rules: QuotaRules,
        *,
        now: float,
        without: Collection[str] = (),
    ) -> None:
        """Know nothing yet.

        Args:
            cluster: with the pods.
            usage: of its queues.
            rules: say which gangs pods are in.
            now: Unix seconds.
            without: the uids of nominated pods that do not count.
        """
        self._cluster, self._usage, self._now = cluster, usage, now
        self.gangs = Gangs(cluster, now, rules.gangs_of, is_leaving=usage.is_leaving)
        self._are_in_no_gang = rules.are_in_no_gang
        self._own: dict[Quota, list[Unit]] = {}
        self._below: dict[Quota, Sequence[Unit]] = {}
        self._of_bundle: dict[int, tuple[Bundle, dict[str, Unit], Unit | None]] = {}
        """By the identity of a bundle: itself, its surplus by uid, and the rest."""
        self._singles: dict[str, Unit] = {}
        self._alike: dict[PodTemplate, _Alike] = {}
        self._nominated: dict[Quota, list[PodInfo]] = {}
        for uid, (queue, _, pod) in usage.nominated().items():
            if uid not in without and uid not in cluster.pods:
                self._nominated.setdefault(queue, []).append(pod)

    def of(self, queue: Quota) -> Sequence[Unit]:
        """Return the units that have pods in a queue or in one below it."""
        found = self._below.get(queue)
        if found is None:
            units: dict[Unit, None] = {}
            queues = {queue: None}
            queues.update(dict.fromkeys(each for each in self._nominated if queue in each.path()))
            stack = [queue]
            while stack:
                each = stack.pop()
                queues[each] = None
                stack += each.children.values()
            for each in queues:
                units.update(dict.fromkeys(self.own(each)))
            found = self._below[queue] = tuple(units)
        return found

    def own(self, queue: Quota) -> Sequence[Unit]:
        """Return the units that have pods in a queue itself."""
        if queue not in self._own:
            at_once(self.preparing(queue))
        return self._own[queue]

    def preparing(self, queue: Quota) -> Generator[None, None, None]:
        """Find the units of a queue itself in steps: whoever asks for them later need not."""
        units: dict[Unit, None] = {}
        is_leaving, unit_of = self._usage.is_leaving, self.unit_of
        left = WALKED_AT_ONCE
        for pod in list(queue.members.values()):
            if not is_leaving(pod.uid):
                units[unit_of(pod)] = None
            left -= 1
            if not left:
                yield
                left = WALKED_AT_ONCE
        for pod in self._nominated.get(queue, ()):
            units[self._nominated_unit(pod)] = None
        self._own[queue] = list(units)

    def unit_of(self, pod: PodInfo) -> Unit:
        """Return the unit of a running pod: itself, or what its gang needs if it needs the pod."""
        alike = self._alike.get(pod.template)
        if alike is None:
            alike = self._alike[pod.template] = self._alike_with(pod)
        bundle = None if alike.in_no_gang else self.gangs.bundle(pod)
        if bundle is None:
            known = self._singles.get(pod.uid)
            if known is None:
                parts = alike.parts if pod.demand is alike.demand else self._parts((pod,), is_placed=True)
                started = self._now if pod.started is None else pod.started
                known = self._singles[pod.uid] = Unit((pod,), parts, alike.priority, started)
            return known
        _, surplus, core = self._units_of(bundle)
        found = surplus.get(pod.uid) or core
        assert found is not None
        return found

    def surplus_of(self, unit: Unit) -> Collection[Unit]:
        """Return the surplus members of the gang that a unit is what the gang needs of; none for any other."""
        if unit.gang is None or unit.is_surplus or not unit.is_placed:
            return ()
        bundle = self.gangs.bundle(unit.pods[0])
        return self._units_of(bundle)[1].values() if bundle is not None else ()

    def going_with(self, unit: Unit) -> tuple[PodInfo, ...]:
        """Return the pods of a unit, and those that cannot stay without it: the surplus of its gang."""
        return (*unit.pods, *(pod for other in self.surplus_of(unit) for pod in other.pods))

    def are_spared(self, unit: Unit, rules: Sequence[ReclaimRule | AboveMaxRule]) -> bool:
        """Return whether no rule may evict a unit: its PodGroup stays, or each rule spares one of its pods."""
        pods, stays = self.going_with(unit), in_group_that_stays(self._cluster)
        if stays is not None and any(map(stays, pods)):
            return True
        cluster, now = self._cluster, self._now
        return all(
            rule.spares is not None and any(rule.spares(Frame(pod, cluster, now), pod) for pod in pods)
            for rule in rules
        )

    def _units_of(self, bundle: Bundle) -> tuple[Bundle, dict[str, Unit], Unit | None]:
        found = self._of_bundle.get(id(bundle))
        if found is None:
            gang = min(bundle.groups, key=str)
            surplus = {pod.uid: self._unit((pod,), gang=gang, is_surplus=True) for pod in bundle.surplus}
            core = self._unit(bundle.core, gang=gang) if bundle.core else None
            found = self._of_bundle[id(bundle)] = bundle, surplus, core
        return found

    def _nominated_unit(self, pod: PodInfo) -> Unit:
        """Return a nominated pod as a unit: with others of its gang, or as one more of a gang that runs."""
        known = self._singles.get(pod.uid)
        if known is not None:
            return known
        gangs = self.gangs.of(pod)
        if not gangs:
            found = self._singles[pod.uid] = self._unit((pod,), is_placed=False)
            return found
        running = self.gangs.bundle(pod)
        group = gangs[0].group
        if running is not None and len(running.all) >= gangs[0].size:
            gang = min(running.groups, key=str)
            found = self._singles[pod.uid] = self._unit((pod,), gang=gang, is_surplus=True, is_placed=False)
            return found
        together = tuple(
            other
            for there in self._nominated.values()
            for other in there
            if any(each.group == group for each in self.gangs.of(other))
        )
        found = self._unit(together, gang=group, is_placed=False)
        self._singles.update(dict.fromkeys((other.uid for other in together), found))
        return found

    def _unit(
        self,
        pods: Sequence[PodInfo],
        *,
        gang: Hashable | None = None,
        is_surplus: bool = False,
        is_placed: bool = True,
    ) -> Unit:
        now = self._now
        return Unit(
            tuple(sorted(pods, key=lambda pod: pod.uid)),
            self._parts(pods, is_placed=is_placed),
            priority_of(pods),
            max(now if pod.started is None else pod.started for pod in pods),
            gang,
            is_surplus,
            is_placed,
        )

    def _parts(self, pods: Sequence[PodInfo], *, is_placed: bool) -> Parts:
        if not is_placed:
            found: dict[Quota, dict[int, int]] = {}
            for pod in pods:
                known = self._usage.promised_to(pod.uid)
                if known is not None:
                    total = found.setdefault(known[0], {})
                    for resource, amount in known[1]:
                        total[resource] = total.get(resource, 0) + amount
            return tuple((queue, tuple(sorted(total.items()))) for queue, total in found.items())
        if len(pods) == 1:
            queue = self._usage.quota_of(pods[0].template)
            return ((queue, self._usage.amounts(pods[0])),) if queue is not None else ()
        return parts_of(self._usage, pods)

    def _alike_with(self, pod: PodInfo) -> _Alike:
        has_claims = bool(pod.template.spec.resource_claims)  # what these count for is each pod's own
        parts = self._parts((pod,), is_placed=True)
        return _Alike(None if has_claims else pod.demand, parts, pod.priority, self._are_in_no_gang(pod))
