"""The filter of pods that come after the one that room is reserved for: none of them delays it."""

from __future__ import annotations

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.backfill.reservation import StartReservation, amounts_of
from kube_policy_scheduler.framework.events import BACKFILL
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, PreFilterResult, Ready, Scope
from kube_policy_scheduler.framework.plugins.base import Filter
from kube_policy_scheduler.framework.queue.backfill_rule import BackfillRule


class BesideReservation(Filter):
    """Rejects the nodes on which a pod would delay the one that room is reserved for.

    A pod that ends before the reservation begins delays nobody. Another one leaves free what the reservation needs on
    its nodes; all other nodes are free for it.
    """

    name = BACKFILL
    scope = Scope.CLUSTER

    def __init__(self, rule: BackfillRule, reservation: StartReservation) -> None:
        self.rule, self.reservation = rule, reservation
        self.reason = f"node(s) reserved for {reservation.holder}, which it would delay"

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Return what the pod takes; skip it if it ends in time."""
        return SKIP if self.rule.end_of(frame) <= self.reservation.at else Ready(amounts_of(frame.pod))

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
        found: BoolArray = passing[frame.rows]
        return found

    def _shares_more(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether a pod and one of the seats on a node both ask for what is no amount: ports or claims."""
        if not _asks_for_more(pod):
            return False
        return any(seat.node_name == node_name and _asks_for_more(seat.pod) for seat in self.reservation.seats)


def _asks_for_more(pod: PodInfo) -> bool:
    """Return whether a pod claims devices, or ports of its node."""
    spec = pod.template.spec
    ports = (port.host_port for each in spec.containers or () for port in each.ports or ())
    return bool(spec.resource_claims) or any(ports)
