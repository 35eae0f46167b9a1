"""Which looks for moves would be answered as the last one was: nothing that the answer follows from has changed.

A fleet changes all the time, as clusters report what is free, and most workloads stay whatever they say. A look that
repeats another one costs a comparison instead of a decision. `rebalancing.rebalance` decides; this knows what it reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from hashlib import blake2b

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.fleet.columns import FleetColumns
from kube_policy_scheduler.fleet.decide import AS_PLACEMENT
from kube_policy_scheduler.fleet.judging import Given, frame_of
from kube_policy_scheduler.fleet.model import NOTHING, Fleet, Identity, Workload
from kube_policy_scheduler.fleet.placement.question import WORKLOAD_AFFINITY, Question
from kube_policy_scheduler.fleet.placement.room import rooms
from kube_policy_scheduler.fleet.rebalancing import rests
from kube_policy_scheduler.fleet.running import RunningWorkloads
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import values_of, workload_values_of
from kube_policy_scheduler.lang.compiling.compiled import (
    CompiledGrouping,
    CompiledOrder,
    CompiledPolicy,
    CompiledScore,
    CompiledTest,
    CompiledWorkloadLimit,
)
from kube_policy_scheduler.lang.compiling.expressions import Evaluate
from kube_policy_scheduler.lang.types import Depends

MOST_KNOWN = 20_000
"""Workloads whose last look is known; of more, those that were looked at first are looked at again."""
_OF_WORKLOAD = Depends.TEMPLATE | Depends.POD | Depends.OWN | Depends.QUEUE | Depends.RUN
_OF_AMOUNTS = Depends.ROW | Depends.OFFER
_OF_TIME = Depends.CLOCK | Depends.SIGNAL
"""Metrics, too: they get old."""


class _Follows(msgspec.Struct, frozen=True, eq=False):
    """What the moves of a policy follow from, besides the workload and what clusters are."""

    unknown: bool
    """Whether something that is not known here: then no look repeats another one."""
    amounts: bool
    """What clusters have and what is free in them."""
    others: bool
    """Which other workloads run where."""
    timed: tuple[Evaluate, ...]
    """Conditions whose answers change as time passes."""
    timed_alike: bool
    """Whether they say the same for all workloads."""
    clips: bool
    """Whether it is all the same how much more room there is than for all replicas."""


class Repeats:
    """The looks that found nothing to move."""

    def __init__(self) -> None:
        """Know none yet."""
        self._known: dict[Identity, tuple[Workload, Hashable]] = {}
        self._follows: dict[int, tuple[CompiledPolicy, _Follows]] = {}
        self._columns = FleetColumns(())
        self._rooms: dict[Hashable, IntArray] = {}
        """Of the clusters of the columns: replicas by requests."""
        self._answers: tuple[tuple[CompiledPolicy, float, Signals], bytes] | None = None
        """Of the columns: what conditions say for all workloads, by a policy and at a time."""

    def state(self, workload: Workload, fleet: Fleet, policy: CompiledPolicy, given: Given) -> Hashable:
        """Return what the answer to a look follows from besides the workload; None if that cannot be said.

        given: with the columns of the fleet.
        """
        columns, rules = given.columns, policy.workloads
        follows = self._followed(policy)
        grouped = WORKLOAD_AFFINITY in fleet.features and (workload.affinity_group or workload.anti_affinity_group)
        if columns is None or rules is None or follows.unknown or grouped:
            return None
        running = fleet.running if follows.others else None
        if running is not None and not isinstance(running, RunningWorkloads):
            return None
        if columns is not self._columns:
            self._columns, self._answers = columns, None
            self._rooms.clear()
        return (
            id(policy),
            tuple(rests(workload, rule, given.now) for rule in rules.moves),
            columns.amounts if follows.amounts else columns.facts,
            running.version if running is not None else None,
            self._timed(workload, policy, given, follows),
            self._room(workload, fleet, clips=follows.clips and not workload.placement.spread),
        )

    def knows(self, workload: Workload, state: Hashable) -> bool:
        """Return whether this workload, as it is, stayed when all was as now."""
        return self._known.get(workload.identity) == (workload, state)

    def stays(self, workload: Workload, state: Hashable) -> None:
        """Note that a workload stays."""
        who = workload.identity
        self._known.pop(who, None)
        while len(self._known) >= MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[who] = workload, state

    def _followed(self, policy: CompiledPolicy) -> _Follows:
        known = self._follows.get(id(policy))
        if known is None:
            known = self._follows[id(policy)] = policy, _follows(policy)
        return known[1]

    def _timed(self, workload: Workload, policy: CompiledPolicy, given: Given, follows: _Follows) -> bytes:
        """Return what the conditions say that change as time passes."""
        if not follows.timed:
            return b""
        asked = policy, given.now, given.signals
        if follows.timed_alike and self._answers is not None and self._answers[0] == asked:
            return self._answers[1]
        frame = frame_of(workload, given)
        found = b"".join(np.asarray(evaluate(frame)).tobytes() for evaluate in follows.timed)
        self._answers = asked, found
        return found

    def _room(self, workload: Workload, fleet: Fleet, *, clips: bool) -> bytes:
        """Return a digest of the room in each cluster."""
        is_common = not workload.room and not workload.components
        key = (workload.has_pods, tuple((workload.requests or NOTHING).items()), workload.requests is None)
        found = self._rooms.get(key) if is_common and workload.replicas else None
        if found is None:
            room = rooms(Question(workload, fleet))
            found = np.fromiter((room(each)[0] for each in fleet.clusters), np.int64, len(fleet.clusters))
            if is_common and workload.replicas:
                self._rooms[key] = found
        if clips and len(workload.components) <= 1 and workload.has_pods and not fleet.whole:
            found = np.minimum(found, workload.replicas)
        return blake2b(found.tobytes(), digest_size=16).digest()


def _follows(policy: CompiledPolicy) -> _Follows:
    rules, checked = policy.workloads, policy.checked
    assert rules is not None
    assert checked.workloads is not None
    tests = [clause for clause in policy.clauses if isinstance(clause, CompiledTest)]
    rest = [clause for clause in policy.clauses if not isinstance(clause, CompiledTest | CompiledOrder)]
    of_tests = {part for clause in tests for value in values_of(clause.checked) for part in typed.below(value)}
    of_moves = {part for each in checked.workloads.rebalances if each.condition for part in typed.below(each.condition)}
    of_rest = {part for clause in rest for value in values_of(clause.checked) for part in typed.below(value)}
    of_rest |= {part for value in workload_values_of(checked.workloads) for part in typed.below(value)} - of_moves
    in_time = _reads(of_tests | of_moves)
    whole = _reads(of_tests | of_moves | of_rest)
    timed: list[Evaluate] = []
    if in_time & _OF_TIME:
        timed = [each for clause in tests for each in (clause.evaluate, clause.missing) if each is not None]
        timed += [each.may_gain for each in rules.moves if each.may_gain is not None]
    words = [level.word for each in rules.divides for level in each.levels[-1:]]
    return _Follows(
        unknown=bool(_reads(of_rest) & _OF_TIME)
        or bool(in_time & _OF_TIME and in_time & _OF_AMOUNTS)
        or any(isinstance(part, typed.MemberAggregate) for part in of_tests | of_moves | of_rest),
        amounts=bool(whole & _OF_AMOUNTS),
        others=any(isinstance(clause, CompiledWorkloadLimit | CompiledGrouping) for clause in rest),
        timed=tuple(timed),
        timed_alike=not in_time & _OF_WORKLOAD,
        clips=any(isinstance(clause, CompiledScore) for clause in rest)
        and not rules.chooses
        and bool(words)
        and AS_PLACEMENT not in words
        and rules.divides[-1].condition is None,
    )


def _reads(parts: Iterable[typed.Typed]) -> Depends:
    found = Depends.NOTHING
    for part in parts:
        found |= part.info.depends
    return found
