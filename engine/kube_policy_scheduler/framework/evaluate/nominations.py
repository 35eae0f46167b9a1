"""Filters in the presence of nominated pods: nodes freed by preemption are kept for them.

Pods nominated to a node with at least the pod's priority are counted as if they ran there (first pass); where
that passes, the filters must pass without them as well (second pass), because such a pod may still land elsewhere.
kube-scheduler: `RunFilterPluginsWithNominatedPods`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Any, TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.guarantees import Parts
from kube_policy_scheduler.framework.evaluate.diagnosis import SUCCESS, status_of
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Scope, Skip
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit, Wanted, shortages
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.framework.quota import comes_before
from kube_policy_scheduler.framework.status import Code, Rejection, Status
from kube_policy_scheduler.quantities.quantity import MAX_INT64

Active: TypeAlias = Sequence[tuple[FilterPlugin, Any]]
"""Filters that PreFilter did not skip, in order, with their state."""


class RejectedAsAWhole(Enum):
    """In place of a state: PreFilter rejected the pod as a whole, and must run again."""

    REJECTED = "rejected"


REJECTED = RejectedAsAWhole.REJECTED


def nominated_for(frame: Frame, node_name: str) -> list[PodInfo]:
    """Return the pods nominated to a node that have precedence over the pod of a frame."""
    return _before(frame, frame.cluster.nominated.get(node_name, {}).values())


def nominated_anywhere(frame: Frame) -> list[PodInfo]:
    """Return the nominated pods that have precedence over the pod of a frame, whatever their nodes.

    What does not ask where a pod runs counts them for each node: what they are to get is taken on any.
    """
    nominated = frame.cluster.nominated
    return _before(frame, chain.from_iterable(map(dict.values, nominated.values()))) if nominated else []


def _before(frame: Frame, others: Iterable[PodInfo]) -> list[PodInfo]:
    pod, cluster = frame.pod, frame.cluster
    return [
        other
        for other in others
        if other.uid != pod.uid
        and other.uid not in cluster.pods
        and comes_before(cluster, other, pod, together=frame.together)
    ]


def nominate(cluster: Cluster, queued: QueuedPod, node_name: str, *, together: Parts = ()) -> list[PodInfo]:
    """Nominate a pod to a node; "" clears the nomination. Return the pods that lose theirs to the same node.

    They do not have precedence over it, and the resources are no longer free.

    together: see `Frame.together`.
    """
    pod = queued.pod
    others = cluster.nominated.get(node_name, {}).values() if node_name else ()
    losers = [
        other for other in others if other.uid != pod.uid and not comes_before(cluster, other, pod, together=together)
    ]
    for other in losers:
        cluster.nominate(other, "")
    cluster.nominate(pod, node_name)
    queued.pod = msgspec.structs.replace(pod, nominated_node=node_name)
    queued.is_nomination_shown = False
    return losers


def verdict(frame: Frame, active: Active) -> Status:
    """Return the first rejection of the frame's only row, or SUCCESS; one pass, in the current cluster.

    Within a dry run plugins that look at other nodes prepare afresh. One that skipped the pod before stays out,
    as in kube-scheduler, and one that would skip it now passes.
    """
    for plugin, kept in active:
        state = kept
        if kept is REJECTED or (plugin.scope is Scope.CLUSTER and frame.cluster.dry_run_changes):
            result = plugin.pre_filter(frame)
            if isinstance(result, Skip):
                continue
            if isinstance(result, Status):
                return result
            state = result.state
        if not plugin.filter(frame, state)[0]:
            return first_status(plugin.name, plugin.rejections(frame, state))
    return SUCCESS


def verdict_with_nominated(frame: Frame, active: Active) -> Status:
    """Return the first rejection of the frame's only row in two passes, or SUCCESS."""
    node_name = frame.cluster.nodes.infos[int(frame.index()[0])].name
    others = nominated_for(frame, node_name) if frame.cluster.nominated else ()
    if others:
        with frame.cluster.dry_run():
            for other in others:
                frame.cluster.place(other, node_name)
            status = verdict(frame, active)
        if status.code is not Code.SUCCESS:
            return status
    return verdict(frame, active)


def first_status(plugin: str, rejections: Iterable[Rejection]) -> Status:
    """Return one plugin's status of the first row."""
    return status_of(plugin, [rejection for rejection in rejections if rejection.where[0]])


def blocked_by_nominated(frame: Frame, active: Active, among: BoolArray | None = None) -> dict[int, Status]:
    """Return the first pass's rejections by row: nodes that the pod can use only without the nominated pods.

    `among`, `bool[nodes]`, limits the rows that are checked: they pass every filter.
    """
    active = _not_counting(active)
    relevant = _relevant(frame, among)
    if not relevant:
        return {}
    cluster = frame.cluster
    if any(plugin.scope is Scope.CLUSTER for plugin, _ in active):
        rejected = {}
        for row, others in relevant.items():
            with cluster.dry_run():
                for other in others:
                    cluster.place(other, cluster.nodes.infos[row].name)
                status = verdict(frame.at(np.array([row])), active)
            if status.code is not Code.SUCCESS:
                rejected[row] = status
        return rejected
    if (wanted := _only_resources(active)) is not None:
        rows = sorted(relevant)
        beside = _beside(cluster, [(row, relevant[row]) for row in rows], wanted)
        return _rejected_rows(frame.at(np.array(rows)), active, beside)
    # No plugin reads other rows: all nominated pods may be counted at the same time.
    with cluster.dry_run():
        for row, others in relevant.items():
            for other in others:
                cluster.place(other, cluster.nodes.infos[row].name)
        return _rejected_rows(frame.at(np.array(sorted(relevant))), active)


def taken_by_nominated(frame: Frame, active: Active, passing: BoolArray) -> list[int]:
    """Return the rows of `blocked_by_nominated` alone, among those that pass every filter, `bool[nodes]`."""
    active = _not_counting(active)
    if (wanted := _only_resources(active)) is None:
        return list(blocked_by_nominated(frame, active, passing))
    relevant = _relevant(frame, passing)
    if not relevant:
        return []
    full = np.zeros(len(relevant), np.bool_)
    for rejection in _beside(frame.cluster, list(relevant.items()), wanted):
        full |= rejection.where
    return [row for row, is_full in zip(relevant, full.tolist(), strict=True) if is_full]


def _not_counting(active: Active) -> Active:
    """Return the filters that count nominated pods only where these are placed."""
    return [each for each in active if not each[0].counts_nominated]


def _only_resources(active: Active) -> Wanted | None:
    """Return what a pod requests if no filter but NodeResourcesFit looks at pods; None: others do."""
    found = [(plugin, state) for plugin, state in active if plugin.scope is not Scope.TEMPLATE]
    if len(found) != 1 or not isinstance(found[0][0], NodeResourcesFit) or not isinstance(found[0][1], Wanted):
        return None
    wanted = found[0][1]
    return None if wanted.unoffered or wanted.devices else wanted


def _beside(cluster: Cluster, others: Sequence[tuple[int, list[PodInfo]]], wanted: Wanted) -> list[Rejection]:
    """Return what is insufficient for a pod on rows once others have come there, without placing them."""
    nodes, rows = cluster.nodes, np.array([row for row, _ in others], np.int64)

    def requested(resource: str) -> IntArray:
        coming = [sum([pod.demand.requests.get(resource, 0) for pod in there]) for _, there in others]
        more = np.array([min(amount, MAX_INT64) for amount in coming], np.int64)
        held = nodes.requested(resource)[rows]
        return np.where(held > MAX_INT64 - more, MAX_INT64, held + more)

    return shortages(
        wanted,
        allocatable=lambda resource: nodes.allocatable(resource)[rows],
        requested=requested,
        pod_count=nodes.pod_count[rows] + np.array([len(there) for _, there in others], np.int64),
    )


def _relevant(frame: Frame, among: BoolArray | None) -> dict[int, list[PodInfo]]:
    cluster = frame.cluster
    found: dict[int, list[PodInfo]] = {}
    for node_name in cluster.nominated:
        row = cluster.nodes.rows.get(node_name)
        if row is not None and (among is None or among[row]):
            others = nominated_for(frame, node_name)
            if others:
                found[row] = others
    return found


def _rejected_rows(frame: Frame, active: Active, short: Sequence[Rejection] | None = None) -> dict[int, Status]:
    """Return the first rejections by row. short: those of NodeResourcesFit; None: it is asked."""
    rows = frame.index()
    rejected: dict[int, Status] = {}
    for plugin, state in active:
        if short is not None and isinstance(plugin, NodeResourcesFit):
            passing, rejections = np.ones(len(rows), np.bool_), short
            for rejection in short:
                passing &= ~rejection.where
        else:
            passing = plugin.filter(frame, state)
            rejections = () if passing.all() else plugin.rejections(frame, state)
        if passing.all():
            continue
        kinds: dict[bytes, Status] = {}
        where = np.array([rejection.where for rejection in rejections])
        for position in np.flatnonzero(~passing).tolist():
            row = rows.item(position)
            if row in rejected:
                continue
            kind = where[:, position].tobytes()
            if kind not in kinds:
                here = [Rejection(r.code, r.reason, r.where[position : position + 1]) for r in rejections]
                kinds[kind] = first_status(plugin.name, here)
            rejected[row] = kinds[kind]
    return rejected


def as_rejections(statuses: Mapping[int, Status], size: int) -> list[tuple[str, list[Rejection]]]:
    """Return statuses by row as rejections by plugin, over all `size` rows."""
    rows: dict[Status, list[int]] = {}
    for row, status in statuses.items():
        rows.setdefault(status, []).append(row)
    found = []
    for status, where in rows.items():
        mask = np.zeros(size, np.bool_)
        mask[where] = True
        found.append((status.plugin, [Rejection(status.code, reason, mask) for reason in status.reasons]))
    return found
