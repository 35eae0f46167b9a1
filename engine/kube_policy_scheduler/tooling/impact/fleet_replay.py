"""The workloads of a fleet, decided by two sets of policies: where each runs in the end, and what differs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan, nan

import msgspec
from msgspec.structs import replace

from kube_policy_scheduler.cluster.prices import prices
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.fleet.claims import DECIDED_SECONDS, claims_of, unhealthy, with_claims
from kube_policy_scheduler.fleet.columns import FleetColumns
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import HEALTHY, Fleet, Outcome, Reason, Workload
from kube_policy_scheduler.fleet.rebalancing import Move
from kube_policy_scheduler.fleet.running import RunningWorkloads
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.quantities.quantity import NANO
from kube_policy_scheduler.tooling.fleet_state import BoundWorkload, FleetState

MOST_PASSES = 1000
"""Passes of `rebalance` of one workload; one that still moves then does not come to rest."""


class Placed(msgspec.Struct, frozen=True):
    """Where a workload runs in the end under one set of policies."""

    policy: str | None
    """That governs it; None: its Placement alone decides."""
    outcome: Outcome
    passes: int = 0
    """Passes of `rebalance` until it came to rest."""
    rests: bool = True
    """False: it still moves after `MOST_PASSES`, or goes in a circle."""


class FleetChange(msgspec.Struct, frozen=True):
    """A workload whose end differs."""

    workload: Workload
    old: Placed
    new: Placed
    moves: tuple[Move, ...]
    """From where it runs under the old policies to where under the new ones; the source or target is "" for replicas
    that only one of them places."""

    @property
    def kind(self) -> str:
        """Return lost, gained or moved: lost are workloads whose replicas only the old policies place all."""
        if self.old.outcome.placed != self.new.outcome.placed:
            return "lost" if self.old.outcome.placed else "gained"
        return "moved"

    @property
    def moved(self) -> int:
        """Return how many replicas change their cluster."""
        return sum(each.replicas for each in self.moves if each.source and each.target)


class FleetFigures(msgspec.Struct, frozen=True):
    """The workloads that were decided, in numbers, under one set of policies."""

    replicas: Mapping[str, int]
    """By cluster."""
    short: int
    """Replicas without a cluster."""
    unplaced: int
    """Workloads that do not have all that they ask for."""
    hourly: float | None
    """Sum of replicas · CPU request in cores · `cluster.price`; None: no cluster states a price."""
    unpriced: int
    """Replicas in clusters without a price."""
    restless: int
    """Workloads that `rebalance` never stops moving."""


class FleetReplay(msgspec.Struct, frozen=True):
    """What became of the workloads that either set of policies governs."""

    decided: int
    left: int
    """Workloads that neither governs; they stay."""
    replicas: int
    """That the decided ones ask for."""
    changes: tuple[FleetChange, ...]
    old: FleetFigures
    new: FleetFigures


class _Side:
    """The fleet while one set of policies decides: what it places counts for the workloads that follow."""

    def __init__(self, state: FleetState, policies: FleetPolicies, now: float, signals: Signals) -> None:
        self.policies = policies
        self._now, self._signals = now, signals
        self._known = {each.name: each for each in state.fleet.clusters}
        self._claims: dict[str, dict[str, int]] = {}
        self._running = RunningWorkloads(bound.workload for bound in state.bound)
        self._fleet = replace(state.fleet, running=self._running)
        self._columns = FleetColumns(state.fleet.clusters)
        for bound in state.bound:
            each = bound.workload
            if each.decided is not None and now < each.decided + DECIDED_SECONDS:
                self._count(each, unhealthy(each), 1)
        self._renew()

    def in_order(self, workloads: Sequence[Workload]) -> list[int]:
        """Return the places of workloads in the order in which the decision maker takes them."""
        return self.policies.in_order(workloads, self._given())

    def settle(self, bound: BoundWorkload, *, afresh: bool) -> Placed:
        """Return where a workload runs once it is decided, if it is to be, and has been moved until it rests."""
        workload, policy = bound.workload, self.policies.governing(bound.workload)
        name = policy.name if policy is not None else None
        if afresh or bound.is_due:
            outcome = self._decide(replace(workload, fresh=True) if afresh else workload)
        else:
            outcome = Outcome(Reason.SUCCESS, "nothing asks for a decision", workload.has)
        self._put(workload, workload.has, outcome.targets)
        if afresh or not outcome.placed:
            return Placed(name, outcome)
        return self._moved(name, workload, outcome)

    def _moved(self, name: str | None, workload: Workload, outcome: Outcome) -> Placed:
        """Return where a workload rests; its replicas count as healthy after each pass, and the pause as over."""
        seen: set[tuple[tuple[str, int], ...]] = set()
        for done in range(MOST_PASSES):
            has = outcome.targets
            now = replace(workload, has=has, health=dict.fromkeys(has, HEALTHY), decided=None, fresh=False)
            found = self.policies.rebalance(now, self._fleet, self._given())
            if found is None:
                return Placed(name, outcome, done)
            place = tuple(sorted(found[0].targets.items()))
            if place in seen:
                return Placed(name, outcome, done, rests=False)
            seen.add(place)
            outcome = found[0]
            self._put(workload, has, outcome.targets)
        return Placed(name, outcome, MOST_PASSES, rests=False)

    def _decide(self, workload: Workload) -> Outcome:
        return self.policies.decide(workload, self._fleet, self._given())

    def _given(self) -> Given:
        return Given(self._now, self._signals, self._columns)

    def _put(self, workload: Workload, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        self._running.put(replace(workload, has=after))
        if dict(before) != dict(after):
            self._count(workload, before, -1)
            self._count(workload, after, 1)
            self._renew()

    def _count(self, workload: Workload, replicas: Mapping[str, int], sign: int) -> None:
        for name, amounts in claims_of(workload, replicas).items():
            total = self._claims.setdefault(name, {})
            for resource, amount in amounts.items():
                total[resource] = total.get(resource, 0) + sign * amount

    def _renew(self) -> None:
        clusters = tuple(with_claims(each, self._claims.get(name)) for name, each in self._known.items())
        self._fleet = replace(self._fleet, clusters=clusters)
        self._columns = FleetColumns(clusters, self._columns)


def replay_fleet(
    state: FleetState,
    old: FleetPolicies,
    new: FleetPolicies,
    *,
    now: float,
    signals: Signals,
    afresh: bool,
    progress: Callable[[int, int], None] = lambda at, of: None,
) -> FleetReplay:
    """Return what becomes of the workloads that either set of policies governs.

    Each set decides them one after another, in the order in which the decision maker would: what one gets, the
    following do not get.

    Args:
        state: the fleet as it is.
        old: the policies before.
        new: the policies after.
        now: Unix seconds.
        signals: the metrics that both read.
        afresh: decide each workload without regard to where it runs, as a WorkloadRebalancer asks for; else each is
            decided only if something asks for it, and is then moved by `rebalance` until it rests.
        progress: called with the number of workloads that both sets have decided, and of all.
    """
    bound = [
        each
        for each in state.bound
        if each.is_decided and any(side.governing(each.workload) is not None for side in (old, new))
    ]
    sides = [_Side(state, policies, now, signals) for policies in (old, new)]
    placed: list[dict[int, Placed]] = [{}, {}]
    asked = [each.workload for each in bound]
    turns = zip(*(side.in_order(asked) for side in sides), strict=True)
    for done, turn in enumerate(turns, 1):
        for side, ends, at in zip(sides, placed, turn, strict=True):
            ends[at] = side.settle(bound[at], afresh=afresh)
        progress(done, len(bound))
    changes = [
        FleetChange(each.workload, *ends, moves=tuple(moves_between(*(end.outcome.targets for end in ends))))
        for at, each in enumerate(bound)
        for ends in [(placed[0][at], placed[1][at])]
        if dict(ends[0].outcome.targets) != dict(ends[1].outcome.targets)
        or ends[0].outcome.placed != ends[1].outcome.placed
    ]
    return FleetReplay(
        len(bound),
        sum(each.is_decided for each in state.bound) - len(bound),
        sum(each.replicas for each in asked),
        tuple(changes),
        *(_figures(state.fleet, asked, [ends[at] for at in range(len(bound))]) for ends in placed),
    )


def moves_between(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[Move]:
    """Yield moves that lead from one placement to another, in the order of the names of clusters.

    Of a workload without replicas, clusters that it leaves and comes to count as one replica each.
    """
    if not any((*old.values(), *new.values())):
        old, new = dict.fromkeys(old, 1), dict.fromkeys(new, 1)
    change = {name: new.get(name, 0) - old.get(name, 0) for name in sorted({*old, *new})}
    gains = deque((name, count) for name, count in change.items() if count > 0)
    for source, count in change.items():
        left = -count
        while left > 0 and gains:
            target, wanted = gains.popleft()
            taken = min(left, wanted)
            yield Move(source, target, taken)
            left -= taken
            if taken < wanted:
                gains.appendleft((target, wanted - taken))
        if left > 0:
            yield Move(source, "", left)
    yield from (Move("", name, count) for name, count in gains)


def _figures(fleet: Fleet, workloads: Sequence[Workload], placed: Sequence[Placed]) -> FleetFigures:
    columns = FleetColumns(fleet.clusters)
    price = dict(zip(columns.rows, prices(columns.cluster.nodes).tolist(), strict=True))
    replicas = {each.name: 0 for each in fleet.clusters}
    hourly, unpriced, short = 0.0, 0, 0
    for workload, end in zip(workloads, placed, strict=True):
        cores = (workload.requests or {}).get("cpu", 0) / 10**NANO
        short += max(0, workload.replicas - sum(end.outcome.targets.values()))
        for name, count in end.outcome.targets.items():
            replicas[name] = replicas.get(name, 0) + count
            paid = price.get(name, nan)
            if isnan(paid):
                unpriced += count
            else:
                hourly += count * cores * paid
    is_priced = not all(map(isnan, price.values()))
    return FleetFigures(
        replicas,
        short,
        sum(not end.outcome.placed for end in placed),
        hourly if is_priced else None,
        unpriced,
        sum(not end.rests for end in placed),
    )
