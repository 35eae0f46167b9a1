"""Writes of a fleet that are refused again and again, as an object has changed: at some time that is told."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kube_policy_scheduler.adapters.kube.errors import Conflict
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.daemon.fleet.binding_writer import BindingWriter
from kube_policy_scheduler.daemon.fleet.decision_writer import DecisionWriter
from kube_policy_scheduler.daemon.fleet.engine import CONFLICTS_TOLD, FleetDecision
from kube_policy_scheduler.daemon.fleet.inventory_engine import ChoiceWriter
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, PlacementAlone
from kube_policy_scheduler.fleet.ocm.placer import Decided
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.workload_record import WorkloadOutcome
from tests.fleet.inventory.test_inventory import inventory
from tests.fleet.karmada.bindings import binding, cluster
from tests.fleet.ocm.test_placer import WALL, hub

FENCE = Fence(lambda: True)


class Changed:
    """An API server in which every object has just changed."""

    async def request(self, verb: str, path: str, **given: Any) -> bytes:
        raise Conflict("the object has been modified", status=409)


class Silent:
    def record(self, about: Any, **given: Any) -> None:
        """Tell nobody."""


def of_karmada(now: float) -> Any:
    maker = DecisionMaker(["fleet"], rules=PlacementAlone())
    maker.replace_clusters([cluster("a")], Steady(0))
    maker.set_binding(binding(), Steady(0))
    writer = BindingWriter(cast(Any, Changed()), maker, cast(Any, Silent()), fence=FENCE, steady=lambda: now)
    return maker, writer.carry_out, lambda at: maker.next(Steady(at))


def of_ocm(now: float) -> Any:
    made = hub()
    writer = DecisionWriter(cast(Any, Changed()), made, cast(Any, Silent()), fence=FENCE, steady=lambda: now)

    def following(at: float) -> Decided | None:
        while (work := made.next(Steady(at), WALL + at)) is not None and not isinstance(work, Decided):
            made.done(work, Steady(at))
        return work

    return made, writer.carry_out, following


def of_inventory(now: float) -> Any:
    made = inventory()
    writer = ChoiceWriter(cast(Any, Changed()), made, fence=FENCE)
    return made, lambda work: writer.carry_out(work, lambda: Steady(now)), lambda at: made.next(Steady(at))


@pytest.mark.parametrize("engine", [of_karmada, of_ocm, of_inventory])
def test_conflicts_that_last_are_told(engine: Any) -> None:
    maker, carry_out, following = engine(1000.0)
    told: list[FleetDecision | None] = []
    for attempt in range(CONFLICTS_TOLD + 1):
        work = following(1000.0 + 100.0 * attempt)
        assert work is not None
        told.append(asyncio.run(carry_out(work)))
    assert told[: CONFLICTS_TOLD - 1] == [None] * (CONFLICTS_TOLD - 1), "the watch shows what has changed"
    for each in told[CONFLICTS_TOLD - 1 :]:
        assert each is not None
        assert (each.became, "the object has been modified" in each.problem) == (WorkloadOutcome.FAILED, True)
    assert maker.tallies.conflicts == CONFLICTS_TOLD + 1
