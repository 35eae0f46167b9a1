"""The filter of pods that come after the one that room is reserved for: none of them delays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.quotas.guarantees import Parts, lead, within
from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaRejection, QuotaUsage
from kube_policy_scheduler.framework.backfill.apart import keep_apart
from kube_policy_scheduler.framework.backfill.reservation import StartReservation, amounts_of
from kube_policy_scheduler.framework.events import BACKFILL
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, FilterPlugin, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.plugins.base import Filter
from kube_policy_scheduler.framework.queue.backfill_rule import BackfillRule
from kube_policy_scheduler.framework.quota import parts_of
from kube_policy_scheduler.framework.status import Status


class BesideReservation(Filter):
    """Rejects the nodes on which a pod would delay the one that room is reserved for.

    A pod that ends before the reservation begins delays nobody. Another one leaves free what the reservation needs on
    its nodes; all other nodes are free for it.
    """

    name = BACKFILL
    reads = Reads.POD | Reads.CLOCK | Reads.ELSEWHERE

    def __init__(self, rule: BackfillRule, reservation: StartReservation, filters: Sequence[FilterPlugin]) -> None:
        """Make one. filters: of the pod that room is reserved for."""
        self.rule, self.reservation, self._filters = rule, reservation, filters
        self.reason = f"node(s) reserved for {reservation.holder}, which it would delay"

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Return what the pod takes; skip it if it ends in time, or if it need not wait for one that borrows."""
        if self.rule.end_of(frame) <= self.reservation.at:
            return SKIP
        usage = frame.cluster.quota_usage
        if usage is not None:
            parts = parts_of(usage, (seat.pod for seat in self.reservation.seats))
            if goes_first(usage, frame.pod, parts, together=frame.together):
                return SKIP
            full = self._too_full(usage, frame, parts)
            if full is not None:
                what = "what queues may borrow" if full.is_of_nodes else f"the quota of queue {full.at}"
                return Status(self.code, self.name, (f"{what} is reserved for {self.reservation.holder}",))
        delayed = self._delayed_by(frame)
        if delayed is not None:
            reason = f"policy clause {delayed.name} would leave too little for {self.reservation.holder}"
            return Status(self.code, self.name, (reason,))
        return Ready(amounts_of(frame.pod))

    def _delayed_by(self, frame: Frame) -> FilterPlugin | None:
        """Return which filter of the reserved pods may reject them because the pod runs; None: none of them."""
        alike: dict[PodTemplate, list[PodInfo]] = {}
        for seat in self.reservation.seats:
            alike.setdefault(seat.pod.template, []).append(seat.pod)
        for pods in alike.values():
            waits = Frame(pods[0], frame.cluster, frame.now, signals=frame.signals)
            for plugin in self._filters:
                if plugin.delays(waits, frame.pod, len(pods)):
                    return plugin
        return None

    def _too_full(self, usage: QuotaUsage, frame: Frame, parts: Parts) -> QuotaRejection | None:
        """Return which quota does not admit what is reserved if the pod still runs then; None: it is admitted.

        That is the `max` of a queue, or what others do not lend (`lend`).
        """
        freed: dict[Quota | None, Counter[int]] = {}
        for end in self.reservation.gone:
            if end.uid in frame.cluster.pods:
                freed.setdefault(usage.quota_of(end.pod.template), Counter()).subtract(dict(usage.amounts(end.pod)))
        if _not_admitted(usage, freed, parts) is not None:
            return None  # not because of this pod
        freed.setdefault(usage.quota_of(frame.template), Counter()).update(dict(usage.amounts(frame.pod)))
        return _not_admitted(usage, freed, parts)

    def filter(self, frame: Frame, state: dict[str, int]) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        cluster = frame.cluster
        passing = np.ones(cluster.nodes.size, np.bool_)
        for node_name, needed in self.reservation.needed.items():
            row = cluster.nodes.rows.get(node_name)
            if row is not None:
                passing[row] = not self._shares_more(frame.pod, node_name) and all(
                    self.reservation.free_beside(cluster, node_name, resource) >= amount
                    for resource, amount in state.items()
                    if needed[resource]
                )
        keep_apart(passing, cluster, frame.template, self.reservation.seats)
        found: BoolArray = passing[frame.rows]
        return found

    def _shares_more(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether a pod and one of the seats on a node both ask for what is no amount: ports or claims."""
        if not _asks_for_more(pod):
            return False
        return any(seat.node_name == node_name and _asks_for_more(seat.pod) for seat in self.reservation.seats)


def _not_admitted(usage: QuotaUsage, more: Mapping[Quota | None, Counter[int]], parts: Parts) -> QuotaRejection | None:
    """Return why parts are not admitted together if more counts as used; None: they are.

    more: by queue, None for pods of none; less has amounts below 0.
    """
    outside = tuple(more.get(None, Counter()).items())
    counted = [(queue, tuple(amounts.items())) for queue, amounts in more.items() if queue is not None]
    for queue, amounts in parts:
        with usage.counting(counted, outside=outside):
            found = usage.rejection(queue, amounts)
        if found is not None:
            return found
        counted.append((queue, amounts))
    return None


def goes_first(usage: QuotaUsage, pod: PodInfo, first: Parts, *, together: Parts = ()) -> bool:
    """Return whether a pod need not wait for a unit, because it would be guaranteed and the unit would borrow.

    Args:
        usage: of the queues.
        pod: that is pending.
        first: what the unit counts for.
        together: what pods need at once, it among them: a gang is guaranteed as a whole; empty: it is alone.
    """
    queue = usage.quota_of(pod.template)
    if queue is None:
        return False
    parts = together or ((queue, usage.amounts(pod)),)
    if not any(_is_within(usage, each, within(parts, each)) for each in queue.path()):
        return False
    return not any(_is_within(usage, each, within(first, each)) for theirs, _ in first for each in theirs.path())


def _is_within(usage: QuotaUsage, queue: Quota, amounts: Amounts) -> bool:
    """Return whether a queue is guaranteed one more request, of the resource that leads it."""
    leads = lead(usage, queue, amounts)
    return leads is not None and queue.will(leads) + dict(amounts)[leads] <= queue.minimum[leads]


def _asks_for_more(pod: PodInfo) -> bool:
    """Return whether a pod claims devices, or ports of its node."""
    spec = pod.template.spec
    ports = (port.host_port for each in spec.containers or () for port in each.ports or ())
    return bool(spec.resource_claims) or any(ports)
