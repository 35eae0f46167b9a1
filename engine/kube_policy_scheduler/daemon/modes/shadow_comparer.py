"""What we would have done with a pod that another scheduler has placed: one comparison. Changes nothing.

It is made when the watch shows the binding, on the cluster as it stood right before: what the other placed until then
counts, so that one pod's difference is not the next one's. Two things are then no longer as they were, and the decision
made while the pod waited stands for them: pods that the other evicted for it, and volumes that it bound for it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.observing.observers import Compared, ShadowOutcome
from kube_policy_scheduler.daemon.scheduling.algorithm import Algorithm
from kube_policy_scheduler.framework.decide.algorithm import NO_POLICY
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.evaluate.evaluation import diagnose, pre_filter
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod
from kube_policy_scheduler.times import Steady


class ShadowComparer:
    """Compares, one pod at a time."""

    def __init__(self, cluster: Cluster, *, algorithm: Algorithm, clock: Callable[[], Steady]) -> None:
        self._cluster = cluster
        self._algorithm = algorithm
        self._clock = clock

    def compare(self, queued: QueuedPod, theirs: str, *, before: Decision | None) -> Compared:
        """Return how a pod's node compares with ours. Call before the pod counts there.

        Args:
            queued: the pod, as it waited.
            theirs: its node.
            before: the last decision while it waited; None where there was none.
        """
        profile = self._algorithm.profile(queued.pod)
        base = Compared(
            queued.pod,
            ShadowOutcome.NOT_PLACED,
            profile.name if profile is not None else None,
            at=self._clock() + self._cluster.ahead,
            queued=queued.queued + self._cluster.ahead,
            theirs=theirs,
            late=before is None,
        )
        if profile is None:
            return msgspec.structs.replace(base, why=NO_POLICY)
        if queued.place is Place.GATED:
            return msgspec.structs.replace(base, why=queued.gated_because)
        evicted = bool(queued.pod.nominated_node)
        if before is not None and (evicted or (queued.pod.volumes and before.host is not None)):
            return _by(before, base)
        return self._now(queued, profile, base)

    def _now(self, queued: QueuedPod, profile: Profile, base: Compared) -> Compared:
        pod, cluster = msgspec.structs.replace(queued.pod, nominated_node=""), self._cluster
        nominated = next((name for name, there in cluster.nominated.items() if pod.uid in there), "")
        with cluster.ledger.silent():
            cluster.nominate(pod, "")
            try:
                frame = msgspec.structs.replace(self._algorithm.frame(queued), pod=pod)
                return self._compared(queued, frame, profile=profile, base=base)
            finally:
                if nominated:
                    cluster.nominate(queued.pod, nominated)

    def _compared(self, queued: QueuedPod, frame: Frame, *, profile: Profile, base: Compared) -> Compared:
        cycle, nodes = self._algorithm.cycle, self._cluster.nodes
        decision = cycle.decide(frame, profile)
        decided = msgspec.structs.replace(self._algorithm.record(queued, decision, seconds=0.0), frame=frame)
        base = msgspec.structs.replace(base, decided=decided)
        if decision.host is None:
            return msgspec.structs.replace(base, why=decision.message, clauses=decision.rejectors)
        base = msgspec.structs.replace(base, ours=decision.host)
        row, our_row = nodes.rows.get(base.theirs, -1), nodes.rows[decision.host]
        feasible = cycle.feasible(frame, profile)
        if not (feasible == row).any():
            status = diagnose(frame, pre_filter(frame, profile.filters)).status(row) if row >= 0 else None
            why = ", ".join(status.reasons) if status is not None else "the node is unknown"
            clauses = frozenset((status.plugin,)) if status is not None else frozenset[str]()
            return msgspec.structs.replace(
                base, verdict=ShadowOutcome.REFUSED, why=why, clauses=clauses, score=decision.score
            )
        totals = cycle.totals(frame, profile, feasible)
        at = {int(each): float(totals[np.flatnonzero(feasible == each)[0]]) for each in (row, our_row)}
        span = float(totals.max() - totals.min())
        margin = (at[our_row] - at[row]) / span if span > 0 else 0.0
        return msgspec.structs.replace(
            base,
            verdict=ShadowOutcome.AGREED if row == our_row or at[row] >= at[our_row] else ShadowOutcome.DIFFERED,
            score=at[our_row],
            their_score=at[row],
            margin=max(0.0, margin),
        )


def _by(before: Decision, base: Compared) -> Compared:
    """Return the comparison with a decision of some time ago."""
    preemption = before.preemption
    ours = before.host or (preemption.nominated_node if preemption is not None else None) or ""
    base = msgspec.structs.replace(base, ours=ours, score=before.score)
    if not ours:
        return msgspec.structs.replace(base, why=before.message, clauses=before.rejectors)
    return msgspec.structs.replace(
        base, verdict=ShadowOutcome.AGREED if ours == base.theirs else ShadowOutcome.DIFFERED
    )
