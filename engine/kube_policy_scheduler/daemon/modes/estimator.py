"""Answers how many more replicas this cluster has room for, by the scheduler's own rules, policies and devices.

A question is tried out on the cluster that the daemon watches, in one turn of the event loop, and undone at its end.
Answers are kept by what was asked. While a new one takes too long, the last good one counts: who asks gets an answer
in time, or no opinion, and never an error that would spoil the answers of other clusters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from math import inf

import msgspec

from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.modes.estimated_pods import MemberTemplate, ReadsTemplates, tried_out
from kube_policy_scheduler.daemon.observing.metrics import EstimatorMetrics
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.fleet.karmada.estimates import (
    MOST_REPLICAS,
    NO_OPINION,
    Question,
    ReplicasQuestion,
    SetsQuestion,
)
from kube_policy_scheduler.tooling.capacity.counting import Fitting
from kube_policy_scheduler.tooling.capacity.seats import Seats
from kube_policy_scheduler.tooling.cluster_state import ClusterState
from kube_policy_scheduler.tooling.rulesets import Ruleset

logger = logging.getLogger(__name__)

SETTLING_SECONDS = 1.0
"""An answer counts for so long, whatever changes: pods of what was decided by it take longer to appear."""
FRESH_SECONDS = 10.0
"""For so long it counts if nothing has changed: rules may look at the clock."""
LAST_GOOD_SECONDS = 60.0
"""For so long it counts where a new one is not there in time."""
MOST_KEPT = 10_000
MOST_WAITING = 64
"""Questions that are computed or wait for it: with more, nobody would get an answer in time."""


@dataclass(frozen=True, slots=True)
class _Stamp:
    """What an answer follows from, besides the question and the time."""

    epoch: int
    policies: object
    signals: Signals

    def is_of(self, other: _Stamp) -> bool:
        return self.epoch == other.epoch and self.policies is other.policies and self.signals is other.signals


@dataclass(frozen=True, slots=True)
class _Kept:
    count: int
    stamp: _Stamp
    at: float
    """Seconds of the stopwatch."""


class Estimator:
    """Answers about one cluster, on the event loop."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        cluster_name: str,
        scheduler_name: str,
        templates: ReadsTemplates,
        problem: Callable[[], str | None],
        metrics: EstimatorMetrics,
        stopwatch: Callable[[], float],
        most_seconds: float = 1.0,
    ) -> None:
        """Make one.

        Args:
            scheduler: its cluster, policies and signals; it has no pods of its own to place.
            cluster_name: of the cluster, in the fleet; about others there is no opinion.
            scheduler_name: that decides about pods whose template is not known.
            templates: reads templates.
            problem: why nothing may be answered at present, None where it may.
            metrics: counts.
            stopwatch: seconds, never going back.
            most_seconds: of one computation.
        """
        self._scheduler, self._cluster = scheduler, scheduler.cluster
        self._cluster_name, self._scheduler_name = cluster_name, scheduler_name
        self._templates, self._problem = templates, problem
        self._metrics, self._stopwatch, self._most_seconds = metrics, stopwatch, most_seconds
        self._kept: KeptView[bytes, _Kept] = KeptView(most=MOST_KEPT)
        self._computing: dict[bytes, asyncio.Task[int | None]] = {}
        self._turn = asyncio.Lock()
        self._rests_until = -inf
        """After a computation, the watches and who waits for an answer that is there get as much time as it took."""
        self._ruleset: tuple[LivePolicies, Ruleset] | None = None

    # --- what is asked -------------------------------------------------------------------------------

    async def replicas(self, question: ReplicasQuestion, *, seconds: float) -> int:
        """Return how many more replicas fit, -1 for no opinion, within so many seconds."""
        return await self._ask(question, seconds)

    async def sets(self, question: SetsQuestion, *, seconds: float) -> int:
        """Return how many more whole sets fit, -1 for no opinion, within so many seconds."""
        return await self._ask(question, seconds)

    async def _ask(self, question: Question, seconds: float) -> int:
        if question.cluster != self._cluster_name or self._problem() is not None:
            return self._say("none", NO_OPINION)
        key = blake2b(msgspec.json.encode(question, order="deterministic"), digest_size=16).digest()
        kept, now = self._kept.get(key), self._stopwatch()
        if kept is not None and self._counts(kept, now):
            return self._say("kept", kept.count)
        task = self._computing.get(key)
        if task is None and len(self._computing) < MOST_WAITING:
            task = self._computing[key] = asyncio.create_task(self._compute(key, question), name="estimate")
            task.add_done_callback(lambda _: self._computing.pop(key, None))
        if task is not None:
            try:
                async with asyncio.timeout(seconds):
                    found = await asyncio.shield(task)
            except TimeoutError:
                pass
            else:
                return self._say("computed", found) if found is not None else self._say("error", NO_OPINION)
        if kept is not None and now - kept.at < LAST_GOOD_SECONDS:
            return self._say("last", kept.count)
        return self._say("none", NO_OPINION)

    def _say(self, answer: str, count: int) -> int:
        self._metrics.answers.labels(answer).inc()
        return count

    def _counts(self, kept: _Kept, now: float) -> bool:
        age = now - kept.at
        return age < SETTLING_SECONDS or (age < FRESH_SECONDS and kept.stamp.is_of(self._stamp()))

    def _stamp(self) -> _Stamp:
        algorithm = self._scheduler.algorithm
        return _Stamp(self._cluster.ledger.epoch, algorithm.policies, algorithm.signals)

    # --- how it is answered --------------------------------------------------------------------------

    async def _compute(self, key: bytes, question: Question) -> int | None:
        """Compute an answer and keep it; None: it cannot be computed, which is logged."""
        try:
            template = await self._templates.read(question.template) if question.template is not None else None
            async with self._turn:
                await asyncio.sleep(max(0.0, self._rests_until - self._stopwatch()))
                return self._compute_in_turn(key, question, template)
        except ValueError as error:
            logger.warning("cannot estimate: %s", str(error)[:200])
        except Exception:
            logger.exception("unexpected error in an estimate")
        return None

    def _compute_in_turn(self, key: bytes, question: Question, template: MemberTemplate | None) -> int:
        began = self._stopwatch()
        found = self._tried(question, template, ends=began + self._most_seconds)
        took = self._stopwatch() - began
        count = min(found.count, MOST_REPLICAS)
        self._kept.set(key, _Kept(count, self._stamp(), self._stopwatch()))
        self._metrics.seconds.observe(took)
        source, result = "request" if template is None else "template", "whole" if found.complete else "partial"
        self._metrics.computations.labels(source, result).inc()
        fields = {"replicas": count, "source": source, "result": result, "seconds": round(took, 3)}
        logger.debug("estimated", extra=fields)
        self._rests_until = began + 2 * took
        return count

    def _tried(self, question: Question, template: MemberTemplate | None, *, ends: float) -> Fitting:
        """Return what fits; the cluster is as before at the end."""
        return tried_out(
            question,
            template,
            Seats(
                ClusterState(self._cluster, {}),
                self._rules(),
                signals=self._scheduler.algorithm.signals,
                now=self._scheduler.context.clock() + self._cluster.ahead,
            ),
            scheduler=self._scheduler_name,
            stop=lambda: self._stopwatch() >= ends,
        )

    def _rules(self) -> Ruleset:
        """Return the policies in force, each for the pods that ask for a scheduler that it serves."""
        policies = self._scheduler.algorithm.policies
        assert isinstance(policies, LivePolicies), "not ready"
        if self._ruleset is None or self._ruleset[0] is not policies:
            self._ruleset = policies, Ruleset("policies", policies.policy_set.standing_in_as(frozenset()))
        return self._ruleset[1]
