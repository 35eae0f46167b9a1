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
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.observing.observers import Compared, ShadowOutcome
from kube_policy_scheduler.daemon.scheduling.live_algorithm import LiveAlgorithm
from kube_policy_scheduler.framework.decide.algorithm import NO_POLICY
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.evaluate.evaluation import diagnose, pre_filter
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, SchedulingQueue
from kube_policy_scheduler.policy.answer import Placed, Unschedulable
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.times import Steady

MOST_MEMBERS = 64
"""Pending members of a gang that are planned together for each comparison. Members of a larger one are decided one by
one, in the domain of the gang: a plan of all of them for each of them would take the square of their number."""


class ShadowComparer:
    """Compares, one pod at a time."""

    def __init__(
        self, cluster: Cluster, queue: SchedulingQueue, *, algorithm: LiveAlgorithm, clock: Callable[[], Steady]
    ) -> None:
        self._cluster, self._queue = cluster, queue
        self._algorithm = algorithm
        self._clock = clock

    def compare(self, queued: QueuedPod, theirs: str, *, before: Decision | None) -> Compared:
        """Return how a pod's node compares with ours. Call before the pod counts there.

        Args:
            queued: the pod, as it waited.
            theirs: its node.
            before: the last decision while it waited; None where there was none.
        """
        policies = self._algorithm.policies
        rules = policies.rules(queued.pod) if policies is not None else None
        base = Compared(
            queued.pod,
            ShadowOutcome.NOT_PLACED,
            rules.profile.name if rules is not None else None,
            at=self._clock() + self._cluster.ahead,
            queued=queued.queued + self._cluster.ahead,
            theirs=theirs,
            late=before is None,
        )
        if rules is None:
            return msgspec.structs.replace(base, why=NO_POLICY)
        if queued.place is Place.GATED:
            return msgspec.structs.replace(base, why=queued.gated_because)
        evicted = bool(queued.pod.nominated_node)
        if before is not None and (evicted or (queued.pod.volumes and before.host is not None)):
            return _by(before, base)
        return self._now(queued, rules, base)

    def _now(self, queued: QueuedPod, rules: Rules, base: Compared) -> Compared:
        pod, cluster = msgspec.structs.replace(queued.pod, nominated_node=""), self._cluster
        nominated = next((name for name, there in cluster.nominated.items() if pod.uid in there), "")
        with cluster.ledger.silent():
            cluster.nominate(pod, "")
            try:
                return self._compared(queued, self._inputs(queued, pod, rules), base=base)
            finally:
                if nominated:
                    cluster.nominate(queued.pod, nominated)

    def _inputs(self, queued: QueuedPod, pod: PodInfo, rules: Rules) -> DecisionInputs:
        """Return the inputs of our decision; the members of a gang that wait are known unless they are very many."""
        ahead, members = self._cluster.ahead, dict[str, QueuedPod]()
        for group in queued.groups:
            members.update(self._queue.group(group))
        return DecisionInputs(
            pod,
            self._cluster,
            rules,
            self._algorithm.signals,
            self._clock() + ahead,
            queued=queued.queued + ahead,
            attempts=queued.attempts,
            pending=Pending([each.pod for each in members.values()]) if 0 < len(members) <= MOST_MEMBERS else None,
        )

    def _compared(self, queued: QueuedPod, inputs: DecisionInputs, *, base: Compared) -> Compared:
        cycle, nodes = self._algorithm.cycle, self._cluster.nodes
        answer = self._algorithm.would_answer(inputs)
        decision = answer.decision if isinstance(answer, Placed | Unschedulable) else None
        decision = decision or Decision(inputs.pod, None, total=nodes.size, message=answer.text)
        frame, profile = answer.inputs.frame(), answer.inputs.profile
        told = self._algorithm.record(queued, decision, now=self._clock(), seconds=0.0)
        decided = msgspec.structs.replace(told, frame=frame)
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
                base, verdict=ShadowOutcome.REJECTED, why=why, clauses=clauses, score=decision.score
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
