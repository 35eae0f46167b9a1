"""What a policy adds to a scheduler that keeps Kubernetes' own rules: its filters, its scores, whom it lets go.

Knows no protocol: nodes are rows, and answers are about rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.default_profile import kubernetes_filters, kubernetes_scores
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis
from kube_policy_scheduler.framework.evaluate.evaluation import diagnose, passes, pre_filter
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.device_shares import DeviceShares
from kube_policy_scheduler.framework.preempt.preemption import evictable_gangs, spares_of
from kube_policy_scheduler.framework.profile import Profile

_KUBERNETES = frozenset(type(plugin) for plugin in kubernetes_filters() if not isinstance(plugin, DeviceShares)) | {
    type(weighted.plugin) for weighted in kubernetes_scores()
}
"""Shares of devices are ours: kube-scheduler does not know them."""


def own_profile(profile: Profile) -> Profile:
    """Return the plugins of a policy without those that kube-scheduler asks itself."""
    return msgspec.structs.replace(
        profile,
        filters=tuple(plugin for plugin in profile.filters if type(plugin) not in _KUBERNETES),
        scores=tuple(weighted for weighted in profile.scores if type(weighted.plugin) not in _KUBERNETES),
    )


@dataclass(frozen=True, slots=True)
class Rejections:
    """Why nodes do not pass."""

    reasons: dict[int, str]
    """By row."""
    unresolvable: frozenset[int]
    """Rows for which evicting pods does not help."""
    diagnosis: Diagnosis
    """Who rejects which."""


def rejections(frame: Frame, profile: Profile) -> Rejections:
    """Return why nodes are rejected; where the pod is rejected as a whole, every node is."""
    diagnosis = diagnose(frame, pre_filter(frame, profile.filters))
    reasons: dict[int, str] = {}
    if diagnosis.rejection is not None:
        reasons = dict.fromkeys(range(diagnosis.size), ", ".join(diagnosis.rejection.reasons))
    for _, rejection in diagnosis.rejections:
        for row in rejection.where.nonzero()[0].tolist():
            reasons[row] = f"{reasons[row]}, {rejection.reason}" if row in reasons else rejection.reason
    return Rejections(reasons, frozenset(diagnosis.unresolvable.nonzero()[0].tolist()), diagnosis)


def priorities(totals: FloatArray, *, most: int) -> IntArray:
    """Return `int64[rows]`: totals brought to 0 to `most`, in proportion; `most` is for the best alone.

    Where all are equal, nothing is preferred: all 0.
    """
    if not len(totals):
        return np.zeros(0, np.int64)
    low, high = float(totals.min()), float(totals.max())
    if not high > low:
        return np.zeros(len(totals), np.int64)
    shares = (totals - low) / (high - low)
    found = np.floor(shares * most).astype(np.int64)
    return np.where(totals == high, most, np.minimum(found, most - 1))


def may_evict(frame: Frame, profile: Profile, row: int, victims: Sequence[PodInfo]) -> bool:
    """Return whether the policy lets a pod take a node by the eviction of some pods there, and would then want it."""
    rule = profile.preemption
    cluster = frame.cluster
    if rule is not None and not rule.allows(frame):
        return False
    spares = spares_of(cluster, rule)
    if spares is not None and any(spares(frame, victim) for victim in victims):
        return False
    gangs = evictable_gangs(frame, profile, spares)
    if gangs is not None and len(gangs.going_with(victims)) != len(victims):
        return False
    with cluster.dry_run():
        for victim in victims:
            cluster.displace(victim.uid)
        return passes(frame, profile, row)
