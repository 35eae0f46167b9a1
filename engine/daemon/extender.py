"""What kube-scheduler is answered when it asks us about a pod: by the same core that decides in the daemon.

kube-scheduler keeps Kubernetes' rules; asked are the policy's own clauses alone, unless all are wanted. A pod that no
policy governs is none of our business: every node passes, none is preferred. Knows neither HTTP nor bytes.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from engine.adapters.extender_protocol import (
    MAX_SCORE,
    BindingArguments,
    Filtered,
    MetaVictims,
    NodesRequest,
    PreemptionRequest,
)
from engine.adapters.kube.binding import Bound
from engine.cluster import objects
from engine.cluster.devices import ANNOTATION, annotation
from engine.cluster.nodes import IntArray
from engine.cluster.pods import PodInfo
from engine.daemon.collaborators import Binder
from engine.daemon.mode_metrics import ExtenderMetrics
from engine.daemon.policies import LivePolicies
from engine.daemon.scheduler import Scheduler
from engine.framework.evaluation import passes
from engine.framework.events import ClusterEvent
from engine.framework.frame import Frame
from engine.framework.profile import Profile
from engine.policy.extension import may_evict, own_profile, priorities, refusals
from engine.policy.policy import Policy

logger = logging.getLogger(__name__)

KNOWN_PODS = 10_000
"""Pods kept from the requests about them: more than kube-scheduler decides while one of them is being bound."""
UNKNOWN_NODE = "node(s) the policy scheduler has not seen yet"


@dataclass(slots=True)
class _Known:
    """A pod that we were asked about."""

    pod: PodInfo
    since: float
    """Unix seconds of the first request."""
    attempts: int = 0


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
        clock: Callable[[], float],
        kubernetes_rules: bool = False,
    ) -> None:
        """Make one.

        Args:
            scheduler: its cluster, policies and signals; it has no pods of its own to place.
            binder: carries out `bind`.
            problem: why nothing may be decided at present, None where it may.
            metrics: counts.
            clock: unix seconds.
            kubernetes_rules: also ask Kubernetes' rules, with what the policy says of them.
        """
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._deciding = scheduler.deciding
        self._binder = binder
        self._problem = problem
        self._metrics = metrics
        self._clock = clock
        self._kubernetes_rules = kubernetes_rules
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._profiles: WeakKeyDictionary[Policy, Profile] = WeakKeyDictionary()

    # --- the verbs -----------------------------------------------------------------------------------

    def filter(self, request: NodesRequest) -> Filtered:
        """Return which of the nodes pass, and why the others do not."""
        problem = self._why_not()
        if problem is not None:
            return Filtered(error=problem)
        known = self._meet(request.pod)
        known.attempts += 1
        everything = range(len(request.names))
        policy = self._governing(known.pod)
        if policy is None:
            return Filtered(everything)
        frame = self._frame(known)
        if (why := policy.hold_reason(frame) if policy.holds else None) is not None:
            return Filtered(unresolvable=dict.fromkeys(request.names, why))
        profile = self._profile(policy)
        rows = self._rows(request.names)
        passing = np.zeros(self._cluster.nodes.size + 1, np.bool_)  # the last one stands for unknown nodes
        passing[self._deciding.cycle.feasible(frame, profile)] = True
        good = passing[rows]
        if good.all():
            return Filtered(everything)
        return self._explained(policy, frame, request.names, rows=rows, good=good.nonzero()[0].tolist())

    def prioritize(self, request: NodesRequest) -> Sequence[int]:
        """Return a score of 0 to 10 for each node; raises NotReadyError where nothing can be said at present."""
        problem = self._why_not()
        if problem is not None:
            raise NotReadyError(problem)
        known = self._meet(request.pod)
        policy = self._governing(known.pod)
        profile = self._profile(policy) if policy is not None else None
        if profile is None or not profile.scores:
            return [0] * len(request.names)
        scores = np.zeros(len(request.names), np.int64)
        rows = self._rows(request.names)
        seen = rows >= 0
        totals = self._deciding.cycle.totals(self._frame(known), profile, rows[seen])
        scores[seen] = priorities(totals, most=MAX_SCORE)
        found: list[int] = scores.tolist()
        return found

    def preempt(self, request: PreemptionRequest) -> Mapping[str, MetaVictims]:
        """Return the nodes that may be had by evictions, with their victims; raises NotReadyError as `prioritize`."""
        problem = self._why_not()
        if problem is not None:
            raise NotReadyError(problem)
        known = self._meet(request.pod)
        policy = self._governing(known.pod)
        if policy is None:
            return request.victims
        frame, profile = self._frame(known), self._profile(policy)
        found = {}
        for name, victims in request.victims.items():
            row = self._cluster.nodes.rows.get(name)
            if row is None:
                continue
            there = self._cluster.pods_on(name)
            pods = [there[victim.uid] for victim in victims.pods or () if victim.uid in there]
            if may_evict(frame, profile, row, pods):
                found[name] = victims
        return found

    async def bind(self, request: BindingArguments) -> str:
        """Bind a pod if the policy still wants it there; return why it is not bound, "" where it is.

        The pod counts on its node from here on, so that a burst is not decided by what the watch has shown alone.
        """
        problem = self._why_not()
        if problem is not None:
            return problem
        known = self._known.get(request.pod_uid)
        pod = known.pod if known is not None else self._scheduler.informer.pending(request.pod_uid)
        if pod is None:
            return f"pod {request.pod_namespace}/{request.pod_name} is not known here: nobody asked about it before"
        known = known or _Known(pod, self._clock())
        why = self._assume(known, request.node)
        if why:
            return why
        devices = self._cluster.devices.held(pod.uid)
        outcome = await self._binder.bind(
            namespace=request.pod_namespace,
            name=request.pod_name,
            uid=request.pod_uid,
            node=request.node,
            annotations={ANNOTATION: annotation(devices)} if devices else None,
        )
        if isinstance(outcome, Bound):
            logger.info("Successfully bound pod to node", extra={"pod": pod.key, "node": request.node})
            return ""
        self._give_back(pod.uid)
        return f"binding to {request.node} failed: {outcome.message}"

    # --- behind them ---------------------------------------------------------------------------------

    def _why_not(self) -> str | None:
        problem = self._problem()
        if problem is None and not self._scheduler.is_current():
            problem = "the view of the cluster is not up to date: the API server does not answer"
        return f"not ready: {problem}" if problem is not None else None

    def _meet(self, pod: objects.Pod) -> _Known:
        info = self._cluster.templates.pod(pod)
        known = self._known.get(info.uid)
        if known is None:
            known = self._known[info.uid] = _Known(info, self._clock())
            if len(self._known) > KNOWN_PODS:
                self._known.popitem(last=False)
        known.pod = info
        self._known.move_to_end(info.uid)
        return known

    def _governing(self, pod: PodInfo) -> Policy | None:
        policies = self._deciding.policies
        assert isinstance(policies, LivePolicies), "not ready"
        return policies.policy_set.governing(pod)

    def _profile(self, policy: Policy) -> Profile:
        found = self._profiles.get(policy)
        if found is None:
            found = policy.profile if self._kubernetes_rules else own_profile(policy.profile)
            self._profiles[policy] = found
            unheard = [word for word, is_there in (("gang", policy.gangs), ("order", policy.order)) if is_there]
            for word in unheard:
                logger.warning("kube-scheduler cannot be told of `%s`: policy %s is without it here", word, policy.name)
        return found

    def _frame(self, known: _Known) -> Frame:
        return Frame(
            known.pod,
            self._cluster,
            self._clock(),
            signals=self._deciding.signals,
            queued=known.since,
            attempts=max(0, known.attempts - 1),
        )

    def _rows(self, names: Sequence[str]) -> IntArray:
        """Return `int64[names]`; -1 for a node that we have not seen."""
        rows = self._cluster.nodes.rows
        return np.fromiter((rows.get(name, -1) for name in names), np.int64, len(names))

    def _explained(
        self, policy: Policy, frame: Frame, names: Sequence[str], *, rows: IntArray, good: list[int]
    ) -> Filtered:
        why = refusals(frame, self._profile(policy))
        for clause in why.clauses:
            self._metrics.refusals.labels(policy.name, clause).inc()
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        passed = set(good)
        for at, (name, row) in enumerate(zip(names, rows.tolist(), strict=True)):
            if at in passed:
                continue
            reason = why.reasons.get(row, UNKNOWN_NODE)
            (unresolvable if row in why.unresolvable else failed)[name] = reason
        return Filtered(good, failed, unresolvable)

    def _assume(self, known: _Known, node_name: str) -> str:
        """Count the pod on its node; return why it must not be there, "" where it may."""
        cluster, informer, pod = self._cluster, self._scheduler.informer, known.pod
        row = cluster.nodes.rows.get(node_name)
        if row is None:
            return f"node {node_name} is not known here"
        if cluster.node_of(pod.uid) is not None:
            return ""  # a second try; the API server says what is true
        policy, frame, devices = self._governing(pod), self._frame(known), None
        if policy is not None:
            profile = self._profile(policy)
            if not passes(frame, profile, row):
                why = refusals(frame, profile).reasons.get(row, "it is not what it was")
                return f"node {node_name} no longer passes policy {policy.name}: {why}"
            devices = self._deciding.cycle.devices(frame, profile, row)
        cluster.place(pod, node_name, devices=devices)
        informer.assumed[pod.uid] = node_name
        return ""

    def _give_back(self, uid: str) -> None:
        informer = self._scheduler.informer
        if informer.assumed.pop(uid, None) is not None and self._cluster.displace(uid) is not None:
            informer.happened(ClusterEvent.POD_DELETE)
