"""Shadow mode beside karmada-scheduler: what it decides is decided here, too, and compared; nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kube_policy_scheduler.daemon.fleet.binding_writer import recorded_workload
from kube_policy_scheduler.daemon.fleet.engine import Due, FleetDecision, Surroundings
from kube_policy_scheduler.daemon.fleet.karmada_engine import Bindings, KarmadaEngine
from kube_policy_scheduler.daemon.observing.observers import ShadowOutcome
from kube_policy_scheduler.fleet.karmada.shadow import DecidedByAnother, Onlooker
from kube_policy_scheduler.fleet.karmada.triggers import condition
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.workload_record import WorkloadOutcome
from kube_policy_scheduler.wording import some

MOST_DIFFERENCES = 5
"""Clusters that are named where both differ."""
MOST_CHARACTERS = 1000
"""Of what the other scheduler said."""


class KarmadaShadow(KarmadaEngine):
    """Decides what another scheduler has decided; it has no work that writes."""

    def __init__(self, given: Surroundings, *, steady: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet. steady: seconds on a clock that nobody sets."""
        super().__init__(given, steady=steady)
        self._onlooker = Onlooker(self.maker)

    @property
    def bindings(self) -> Bindings:
        """Return what takes bindings."""
        return self._onlooker

    def next(self, now: Steady) -> Due | None:
        """Return what is to be compared next, or asked for it; None if there is nothing now."""
        return self._onlooker.next(now)

    async def carry_out(self, work: Any) -> FleetDecision | None:
        """Answer a question, or return how two decisions compare."""
        if not isinstance(work, DecidedByAnother):
            await self.answer(work)
            return None
        self.maker.waiting.settled(work.key, self._now())
        return compared(work)

    def look_again(self, now: Steady) -> None:
        """Look at members; the other scheduler moves what it wants to move."""
        self.look_at_members()


def compared(found: DecidedByAnother) -> FleetDecision:
    """Return how a decision of another scheduler compares with ours."""
    theirs = {each.name: each.replicas for each in found.told.spec.clusters or ()}
    verdict, why, clauses = _verdict(found, theirs)
    return FleetDecision(
        key=found.key,
        generation=found.asked.metadata.generation,
        workload=recorded_workload(found.asked),
        outcome=found.ours,
        became=WorkloadOutcome.SHADOW,
        before={each.name: each.replicas for each in found.asked.spec.clusters or ()},
        unread=found.unread,
        problem=why,
        theirs=theirs if found.is_placed else {},
        compared=verdict,
        clauses=clauses,
    )


def _verdict(found: DecidedByAnother, theirs: dict[str, int]) -> tuple[ShadowOutcome, str, frozenset[str]]:
    """Return how the two compare, why, and what rejects the choice of the other, or everything."""
    ours, verdicts = found.ours, found.ours.verdicts
    places = ours.placed or (ours.write and bool(ours.targets))
    if not found.is_placed:
        if not places:
            return ShadowOutcome.AGREED, "", frozenset()
        said = condition(found.told)
        return ShadowOutcome.NOT_BOUND, said.message[:MOST_CHARACTERS] if said is not None else "", frozenset()
    if not places:
        rejecting = frozenset(each.rejected_by for each in verdicts.values() if each.rejected_by)
        return ShadowOutcome.NOT_PLACED, ours.message, rejecting
    if theirs == ours.targets:
        return ShadowOutcome.AGREED, "", frozenset()
    rejected = {name: verdicts[name] for name in theirs if name in verdicts and verdicts[name].rejected_by}
    if rejected:
        told = [f"{name}: {each.message or each.rejected_by}" for name, each in sorted(rejected.items())]
        rejecting = frozenset(each.rejected_by for each in rejected.values())
        return ShadowOutcome.REJECTED, some(told, limit=MOST_DIFFERENCES), rejecting
    differing = [name for name in sorted({*theirs, *ours.targets}) if theirs.get(name) != ours.targets.get(name)]
    told = [_difference(name, theirs, found) for name in differing]
    return ShadowOutcome.DIFFERED, some(told, limit=MOST_DIFFERENCES), frozenset()


def _difference(name: str, theirs: dict[str, int], found: DecidedByAnother) -> str:
    verdict = found.ours.verdicts.get(name)
    why = f" ({verdict.message})" if verdict is not None and verdict.message else ""
    return f"{name}: ours {found.ours.targets.get(name, 0)}, theirs {theirs.get(name, 0)}{why}"
