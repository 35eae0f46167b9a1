"""What kube-scheduler is answered when it asks us about a pod: by the same core that decides in the daemon.

kube-scheduler keeps Kubernetes' rules; asked are the policy's own clauses alone, unless all are wanted. A pod that no
policy governs is none of our business: every node passes, none is preferred. Knows neither HTTP nor bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.adapters.http.extender_protocol import (
    MAX_SCORE,
    BindingArguments,
    Filtered,
    MetaVictims,
    NodesRequest,
    PreemptionRequest,
)
from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.daemon.modes.asked_pods import AskedPods
from kube_policy_scheduler.daemon.modes.extender_binder import ExtenderBinder
from kube_policy_scheduler.daemon.observing.decision_entry import counted
from kube_policy_scheduler.daemon.observing.live_metrics import label_value
from kube_policy_scheduler.daemon.observing.metrics import ExtenderMetrics
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.context import Binder
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.framework.choice import best
from kube_policy_scheduler.framework.decide.algorithm import NO_POLICY
from kube_policy_scheduler.framework.status import fit_message
from kube_policy_scheduler.policy.extension import Rejections, may_evict, priorities, rejections
from kube_policy_scheduler.tooling.decision_record import Outcome
from kube_policy_scheduler.wording import part_of

UNKNOWN_NODE = "node(s) that the policy scheduler has not seen yet"


class NotReadyError(Exception):
    """Nothing can be said at present; the text says why."""


class Extender:
    """Answers the four verbs, on the event loop. `problem` says why it cannot at present."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        binder: Binder,
        problem: Callable[[], str | None],
        metrics: ExtenderMetrics,
        observer: Observer,
        stopwatch: Callable[[], float],
        kubernetes_rules: bool = False,
    ) -> None:
        """Make one.

        Args:
            scheduler: its cluster, policies and signals; it has no pods of its own to place.
            binder: carries out `bind`.
            problem: why nothing may be decided at present, None where it may.
            metrics: counts.
            observer: receives each answer that is about a pod.
            stopwatch: seconds, never going back.
            kubernetes_rules: also ask Kubernetes' rules, with what the policy says of them.
        """
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._algorithm = scheduler.algorithm
        self._problem = problem
        self._metrics = metrics
        self._pods = AskedPods(scheduler, observer=observer, kubernetes_rules=kubernetes_rules)
        self._binding = ExtenderBinder(scheduler, self._pods, binder=binder, stopwatch=stopwatch)

    # --- the verbs -----------------------------------------------------------------------------------

    def filter(self, request: NodesRequest) -> Filtered:
        """Return which of the nodes pass, and why the others do not."""
        problem = self._why_not()
        if problem is not None:
            return Filtered(error=problem)
        known = self._pods.meet(request.pod)
        known.attempts += 1
        everything = range(len(request.names))
        policy = self._pods.policy(known.pod)
        asked = len(request.names)
        if policy is None:
            self._pods.report(known, "filter", Outcome.ANSWERED, nodes=asked, passed=asked, message=NO_POLICY)
            return Filtered(everything)
        frame = self._pods.frame(known)
        if (why := policy.hold_reason(frame) if policy.holds else None) is not None:
            self._pods.report(known, "filter", Outcome.HELD, nodes=asked, passed=0, message=why)
            return Filtered(unresolvable=dict.fromkeys(request.names, why))
        profile = self._pods.profile(policy)
        rows = self._rows(request.names)
        passing = np.zeros(self._cluster.nodes.size + 1, np.bool_)  # the last one stands for unknown nodes
        passing[self._algorithm.cycle.feasible(frame, profile)] = True
        good = passing[rows]
        if good.all():
            self._pods.report(known, "filter", Outcome.ANSWERED, profile=profile, rows=rows, nodes=asked, passed=asked)
            return Filtered(everything)
        why_not = rejections(frame, profile)
        for clause in why_not.diagnosis.rejectors():
            self._metrics.refusals.of(policy.name, label_value(clause)).inc()
        answer = _explained(why_not, request.names, rows=rows, good=good.nonzero()[0].tolist())
        reasons = Counter((*answer.failed.values(), *answer.unresolvable.values()))
        self._pods.report(
            known,
            "filter",
            Outcome.ANSWERED if answer.passed else Outcome.UNSCHEDULABLE,
            profile=profile,
            rows=rows,
            nodes=asked,
            passed=len(answer.passed),
            reasons=counted(why_not.diagnosis, rows[rows >= 0]),
            message="" if answer.passed else fit_message(asked, reasons),
        )
        return answer

    def prioritize(self, request: NodesRequest) -> Sequence[int]:
        """Return a score of 0 to 10 for each node; raises NotReadyError where nothing can be said at present."""
        problem = self._why_not()
        if problem is not None:
            raise NotReadyError(problem)
        known = self._pods.meet(request.pod)
        policy = self._pods.policy(known.pod)
        profile = self._pods.profile(policy) if policy is not None else None
        if profile is None or not profile.scores:
            return [0] * len(request.names)
        scores = np.zeros(len(request.names), np.int64)
        rows = self._rows(request.names)
        seen = rows >= 0
        totals = self._algorithm.cycle.totals(self._pods.frame(known), profile, rows[seen])
        scores[seen] = priorities(totals, most=MAX_SCORE)
        if len(totals):
            first = best(totals)
            self._pods.report(
                known,
                "prioritize",
                Outcome.ANSWERED,
                profile=msgspec.structs.replace(profile, filters=()),
                rows=rows[seen],
                node=self._cluster.nodes.names[int(rows[seen][first[0]])],
                score=float(totals[first[0]]),
                ties=len(first),
            )
        found: list[int] = scores.tolist()
        return found

    def preempt(self, request: PreemptionRequest) -> Mapping[str, MetaVictims]:
        """Return the nodes that may be had by evictions, with their victims; raises NotReadyError as `prioritize`."""
        problem = self._why_not()
        if problem is not None:
            raise NotReadyError(problem)
        known = self._pods.meet(request.pod)
        policy = self._pods.policy(known.pod)
        if policy is None:
            return request.victims
        frame, profile = self._pods.frame(known), self._pods.profile(policy)
        found = {}
        for name, victims in request.victims.items():
            row = self._cluster.nodes.rows.get(name)
            if row is None:
                continue
            there = self._cluster.pods_on(name)
            pods = [there[victim.uid] for victim in victims.pods or () if victim.uid in there]
            if may_evict(frame, profile, row, pods):
                found[name] = victims
        message = f"preemption may help on {part_of(len(found), len(request.victims), 'node')}"
        self._pods.report(known, "preempt", Outcome.ANSWERED, message=message)
        return found

    async def bind(self, request: BindingArguments) -> str:
        """Bind a pod if the policy still wants it there; return why it is not bound, "" where it is."""
        return self._why_not() or await self._binding.bind(request)

    # --- behind them ---------------------------------------------------------------------------------

    def _why_not(self) -> str | None:
        problem = self._problem()
        if problem is None and not self._scheduler.view():
            problem = "the cache is not current: the API server does not answer"
        return f"not ready: {problem}" if problem is not None else None

    def _rows(self, names: Sequence[str]) -> IntArray:
        """Return `int64[names]`; -1 for a node that we have not seen."""
        rows = self._cluster.nodes.rows
        return np.fromiter((rows.get(name, -1) for name in names), np.int64, len(names))


def _explained(why: Rejections, names: Sequence[str], *, rows: IntArray, good: list[int]) -> Filtered:
    """Return the answer to a `filter` that not all nodes pass; `good` are the places of those that do."""
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    passed = set(good)
    for at, (name, row) in enumerate(zip(names, rows.tolist(), strict=True)):
        if at in passed:
            continue
        reason = why.reasons.get(row, UNKNOWN_NODE)
        (unresolvable if row in why.unresolvable else failed)[name] = reason
    return Filtered(good, failed, unresolvable)
