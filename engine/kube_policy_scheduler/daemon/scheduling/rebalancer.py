"""Moves pods continuously, where policies say `rebalance`: plans in steps, evicts, reserves room, and judges itself.

The planner is that of `policyctl rebalance`. It tries pods on the scheduler's own cluster, and undoes all of it before
the event loop runs again. Waiting pods are not woken by that, because none of them gets room. Each move is proved once
more right before its eviction.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol

from kube_policy_scheduler.adapters.kube.errors import Conflict, Fenced, KubeError
from kube_policy_scheduler.adapters.kube.eviction_api import EVICTED, FAILED, LATER, NEVER, Evicted
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.configuration.settings import RebalancingSettings
from kube_policy_scheduler.daemon.observing.live_metrics import RebalancingState
from kube_policy_scheduler.daemon.observing.observers import Observer, PodBound, PodMoved
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.scheduling.reservations import Reservation
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.preempt.victims import Budgets
from kube_policy_scheduler.framework.queue.pod_transitions import Standing
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.rebalancing.ledger import Ledger, MoveOutcome, decode_ledger, encode_ledger
from kube_policy_scheduler.tooling.rebalancing.moves import Move, MoveBudgets, replacement_of, workload_of

if TYPE_CHECKING:
    from kube_policy_scheduler.tooling.rebalancing.plan import Planner

logger = logging.getLogger(__name__)

MOVES = "policy-scheduler/moves"
"""The annotation of the Lease that says what was moved."""
PLANNER = "kube_policy_scheduler.tooling.rebalancing.plan"
LOOK_SECONDS = 2.0
"""Between two looks at whether a pass is due, and whether reservations are over."""
SLICE_SECONDS = 0.002
"""Longest step of the search for candidates: as long as a batch of scheduling cycles."""
PAUSE_SECONDS = 0.01
"""Between two steps: the search takes at most a sixth of the time, and pods that come meanwhile go first."""
MOST_TRIES = 100
"""Candidates of one pass that are proved; each takes a few milliseconds."""
MEMORY_RETRY_SECONDS = 30.0
"""After a failure to read or store what was moved, such as for want of a permission; moves go on meanwhile."""
DOUBT_SECONDS = 30.0
"""Room stays reserved for this long if it is not known whether the eviction was carried out."""
_BUSY = (Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT, Place.PERMIT)
"""Where pending pods are that go before moves. Unschedulable pods have no place anyway; gated ones ask for none."""


class PodEvictor(Protocol):
    """Evicts one pod through the Eviction API."""

    async def evict(self, pod: Evicted) -> str:
        """Return `evicted`, or why not: `later: …`, `never: …`, `failed: …`."""
        ...


class LedgerMemory(Protocol):
    """Where what was moved outlives this replica. All raise KubeError."""

    async def read(self) -> str | None:
        """Return what is stored; None: nothing."""
        ...

    async def write(self, text: str, *, at: float) -> None:
        """Store over what was read. at: Unix seconds."""
        ...


class Rebalancer(Observer):
    """One per replica; it acts only while its replica leads."""

    def __init__(
        self,
        scheduler: Scheduler,
        settings: RebalancingSettings,
        *,
        evictor: PodEvictor,
        memory: LedgerMemory | None = None,
        seed: int = 0,
        report: Callable[[PodInfo, Move], None] = lambda victim, move: None,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Make one.

        Args:
            scheduler: whose cluster and queue it uses.
            settings: dry run, times and budgets.
            evictor: of pods.
            memory: of moves, over a restart; None: there is none. A dry run needs none.
            seed: of the tie-break.
            report: called for each evicted pod, for an event.
            stopwatch: seconds, for the length of a step.
        """
        self._scheduler, self._settings, self._evictor = scheduler, settings, evictor
        self._context, self._reservations = scheduler.context, scheduler.reservations
        self._seed, self._report, self._stopwatch = seed, report, stopwatch
        self._memory = memory if not settings.dry_run else None
        self._is_recalled, self._is_stored = False, True
        self._policy_hash, self._problem = "", ""
        self._memory_due = 0.0
        """When the memory is used again after it failed, seconds of the event loop."""
        self._ledger = Ledger(per_hour=settings.most_per_hour)
        self._policies: PolicySet | None = None
        self._due = 0.0
        """When the next pass begins, seconds of the event loop."""
        self._passes, self._checked = 0, 0
        self._planned: tuple[Move, ...] = ()
        self._said_stopped = ""

    async def run(self) -> NoReturn:
        """Look now and then, for ever."""
        self._due = _now() + self._settings.every
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._scheduler.leading:
                self._reservations.clear()
                self._ledger.resume()
                self._is_recalled = False
                self._due = _now() + self._settings.every
                continue
            self._expire()
            await self._remember()
            if _now() >= self._due and self._may_move():
                self._due = _now() + self._settings.every
                await self.one_pass()

    def state(self) -> RebalancingState | None:
        """Return what the status page and the metrics show; None if no policy has a `rebalance`."""
        if self._current() is None:
            return None
        return RebalancingState(
            self._settings.dry_run,
            self._ledger.stopped,
            self._passes,
            self._checked,
            self._planned,
            len(self._reservations),
            {outcome.value: self._ledger.counts[outcome] for outcome in MoveOutcome},
        )

    # --- what outlives this replica ------------------------------------------------------------------

    def use_policies(self, policy_hash: str) -> None:
        """Note what tells the policies in force from others."""
        self._policy_hash = policy_hash

    async def _remember(self) -> None:
        """Read what was moved before this replica led, once; store what has changed since the last look."""
        if self._memory is None or self._current() is None or (self._is_recalled and self._is_stored):
            return
        if _now() < self._memory_due:
            return
        try:
            if not self._is_recalled:
                self._recall(await self._memory.read())
                self._is_recalled = True
            if not self._is_stored:
                now = self._context.wall()
                self._is_stored = True  # what is noted from here on is stored at the next look
                kept = self._ledger.kept(_now(), unix=now, policies=self._policy_hash)
                await self._memory.write(encode_ledger(kept), at=now)
        except Fenced:
            self._is_stored = False
        except Conflict:
            self._is_recalled = self._is_stored = False  # another replica led meanwhile
        except KubeError as error:
            self._is_stored, self._memory_due = False, _now() + MEMORY_RETRY_SECONDS
            if str(error) != self._problem:
                logger.warning("failed to keep what was moved over a restart: %s", error)
            self._problem = str(error)
        else:
            self._problem = ""

    def _recall(self, text: str | None) -> None:
        if text is None:
            return
        try:
            kept = decode_ledger(text)
        except ValueError as error:
            logger.warning("cannot read what was moved before: %s", error)
            return  # it is written over
        self._ledger.recall(kept, _now(), unix=self._context.wall(), policies=self._policy_hash)
        self._say_if_stopped()

    # --- one pass ------------------------------------------------------------------------------------

    def _current(self) -> PolicySet | None:
        """Return the policies in force if one of them has a `rebalance`."""
        policies = self._scheduler.algorithm.policies
        found = policies.policy_set if isinstance(policies, LivePolicies) else None
        if found is not self._policies:
            self._policies = found
            self._ledger.resume()
        return found if found is not None and found.rebalances else None

    def _may_move(self) -> bool:
        """Return whether nothing speaks against moves at this moment: pending pods go first."""
        counts = self._context.queue.counts()
        return self._scheduler.leading and self._scheduler.view() and not any(counts.get(place) for place in _BUSY)

    def _planner(self, policies: PolicySet, *, cycle: Cycle) -> Planner:
        from kube_policy_scheduler.policy.answer import Answers
        from kube_policy_scheduler.tooling.capacity.seats import Seats
        from kube_policy_scheduler.tooling.cluster_state import ClusterState
        from kube_policy_scheduler.tooling.rebalancing.plan import Planner, RebalanceOptions, stated_in
        from kube_policy_scheduler.tooling.rulesets import Ruleset

        context, signals, now = self._context, self._scheduler.algorithm.signals, self._context.wall()
        ruleset = Ruleset("policies", policies)
        limits = self._settings
        budgets = MoveBudgets(limits.most, limits.most_per_node, limits.most_per_workload, limits.most_per_namespace)
        at = _now()
        options = RebalanceOptions(
            ruleset, None, now, signals, self._seed, budgets,
            local_storage=not limits.move_local_storage,
            wanted=lambda pod: not self._ledger.keeps(workload_of(pod), pod.uid, at),
            stated=stated_in(ruleset, context.cluster, signals=signals, now=now),
            left=self._ledger.left(at),
            reserves=True,
        )  # fmt: skip
        state = ClusterState(context.cluster, {})
        answers = Answers(cycle=cycle)
        return Planner(Seats(state, ruleset, signals=signals, now=now, answers=answers), options)

    async def one_pass(self) -> tuple[Move, ...]:
        """Look for pods to move, and move them within the budgets; return the moves."""
        policies = self._current()
        allowed = self._ledger.allowed(_now())
        if policies is None or not allowed:
            return ()
        if PLANNER not in sys.modules:  # most schedulers never need it, and it takes 50 ms
            await asyncio.to_thread(import_module, PLANNER)
        from kube_policy_scheduler.tooling.rebalancing.plan import SpentBudgets

        self._passes += 1
        cluster, cycle = self._context.cluster, Cycle(seed=self._seed)
        planner = self._planner(policies, cycle=cycle)
        steps = iter(planner.sweep(list(cluster.pods.values())))
        while not self._step(steps):
            await asyncio.sleep(PAUSE_SECONDS)
            if not self._scheduler.leading or self._current() is not policies:
                return ()
        self._checked = planner.checked
        spent = SpentBudgets(planner.options.budgets, Budgets(cluster))
        made: list[tuple[Move, PodInfo]] = []
        for number, candidate in enumerate(planner.ranked()):
            if number >= MOST_TRIES or len(made) >= min(allowed, self._settings.most):
                break
            await asyncio.sleep(PAUSE_SECONDS)
            if not self._may_move() or self._current() is not policies or self._ledger.stopped:
                break
            pod = cluster.pods.get(candidate.uid)
            if pod is None or pod.terminating or pod.uid in cluster.assumed:
                continue  # what is not shown on its node yet may still be cancelled, or have come this moment
            if cluster.node_of(pod.uid) not in cluster.nodes.rows:
                continue  # its node was removed since the search
            if self._scheduler.evictions.standing(pod.uid) is not Standing.BOUND:
                continue
            if any(kept.victim.uid == pod.uid for kept in self._reservations.all()):
                continue  # nobody knows yet whether it was evicted
            fresh = self._planner(policies, cycle=cycle)
            rule = fresh.options.rule(pod)
            if rule is None or spent.rejection(pod, cluster.node_of(pod.uid) or "", rule):
                continue
            move = self._prove(fresh, pod, made)
            if move is None:
                continue
            if self._settings.dry_run:
                self._note(move, MoveOutcome.PLANNED)
                made.append((move, pod))
                spent.spend(pod, move.source, rule)
            elif await self._evict(move, pod, rest_seconds=rule.rest_seconds):
                made.append((move, pod))
                spent.spend(pod, move.source, rule)
        before, self._planned = self._planned, tuple(move for move, _ in made)
        if self._settings.dry_run and before != self._planned:
            for move in self._planned:
                logger.info("Would move pod: dry run", extra=_fields(move))
        return self._planned

    def _step(self, steps: Iterable[None]) -> bool:
        """Search for a short time; return whether that was the end."""
        end = self._stopwatch() + SLICE_SECONDS
        with self._context.cluster.ledger.silent():
            return all(self._stopwatch() < end for _ in steps)

    def _prove(self, planner: Planner, pod: PodInfo, made: Iterable[tuple[Move, PodInfo]]) -> Move | None:
        """Return the move of a pod if it is proved beside all moves that are still on their way."""
        seats, cluster, now = planner.seats, self._context.cluster, self._context.wall()
        with cluster.ledger.silent(), seats.trying():
            kept = self._reservations
            on_the_way = [(each.move, each.victim, kept.replacement(each)) for each in kept.all()]
            if self._settings.dry_run:
                on_the_way += [(move, victim, replacement_of(victim, now)) for move, victim in made]
            for move, victim, replacement in on_the_way:
                if cluster.node_of(victim.uid) is not None:
                    seats.take_off(victim)
                if cluster.node_of(replacement.uid) is None and move.target in cluster.nodes.rows:
                    planner.assume(replacement, move.target)
            found = planner.prove(pod)
        return found if isinstance(found, Move) else None

    async def _evict(self, move: Move, pod: PodInfo, *, rest_seconds: float) -> bool:
        """Reserve room and evict a pod; return whether it was evicted."""
        stand_in = replacement_of(pod, self._context.wall())
        kept = Reservation(move, pod, stand_in, _now() + self._settings.reserve)
        self._reservations.reserve(kept)
        try:
            said = await self._evictor.evict(Evicted(pod.namespace, pod.name, pod.uid))
        except Exception as error:
            logger.exception("unexpected error in an eviction", extra=_fields(move))
            said = f"{FAILED}: {error!r}"
        kind = said.partition(":")[0]
        if said == EVICTED:
            logger.info("Evicted pod to move it", extra=_fields(move))
            self._report(pod, move)
            self._note(move, MoveOutcome.EVICTED, rest_seconds=rest_seconds)
            return True
        outcomes = {LATER: MoveOutcome.LATER, NEVER: MoveOutcome.NEVER}
        level = logging.INFO if kind in outcomes else logging.WARNING
        logger.log(level, "Could not evict pod to move it", extra={**_fields(move), "why": said})
        self._note(move, outcomes.get(kind, MoveOutcome.FAILED), said)
        if kind == FAILED:  # the request may have arrived all the same
            kept.in_doubt, kept.until = True, _now() + DOUBT_SECONDS
        else:
            self._reservations.release(kept)
        return False

    # --- what becomes of moves -----------------------------------------------------------------------

    def on_bound(self, bound: PodBound) -> None:
        """Note where a replacement is."""
        self._settle(bound.pod.uid, bound.node_name)

    def _settle(self, uid: str, node_name: str) -> None:
        kept = self._reservations.settle(uid)
        if kept is not None:
            hit = node_name == kept.move.target
            self._note(kept.move, MoveOutcome.LANDED if hit else MoveOutcome.ELSEWHERE, node_name)

    def _expire(self) -> None:
        cluster = self._context.cluster
        for kept in self._reservations.all():
            if kept.claimed_by in cluster.assumed:
                continue  # its binding is under way
            if (node_name := cluster.node_of(kept.claimed_by)) is not None:
                self._settle(kept.claimed_by, node_name)  # the watch shows it, and the answer to its binding was lost
                continue
            if _now() < kept.until:
                continue
            self._reservations.release(kept)
            if not kept.in_doubt or self._is_leaving(kept.victim):
                self._note(kept.move, MoveOutcome.PENDING)

    def _is_leaving(self, victim: PodInfo) -> bool:
        known = self._context.cluster.pods.get(victim.uid)
        return known is None or known.terminating

    def _note(self, move: Move, outcome: MoveOutcome, note: str = "", *, rest_seconds: float = 0.0) -> None:
        self._ledger.note(move, outcome, _now(), rest_seconds=rest_seconds)
        if outcome in (MoveOutcome.EVICTED, MoveOutcome.LANDED, MoveOutcome.ELSEWHERE, MoveOutcome.PENDING):
            self._is_stored = False
        self._context.observer.on_moved(PodMoved(move, outcome, self._context.wall(), note))
        if outcome in (MoveOutcome.ELSEWHERE, MoveOutcome.PENDING):
            logger.warning("Replacement is not on the node of the plan", extra={**_fields(move), "node": note})
        self._say_if_stopped()

    def _say_if_stopped(self) -> None:
        if self._ledger.stopped != self._said_stopped:
            self._said_stopped = self._ledger.stopped
            if self._said_stopped:
                logger.error("rebalancing stopped itself until the policies change: %s", self._said_stopped)


def _fields(move: Move) -> dict[str, object]:
    return {"pod": move.pod, "from": move.source, "to": move.target, "why": move.clause}


def _now() -> float:
    """Return seconds of the event loop, which no clock change touches."""
    return asyncio.get_running_loop().time()
