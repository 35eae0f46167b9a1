"""The whole loop under seeded chaos; more of it with `make soak`."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from tests.simulation.backfilled import BackfillSimulation
from tests.simulation.moving import MovingSimulation
from tests.simulation.network import OUR_FAULTS, REQUEST_FAULTS
from tests.simulation.queues import QueueSimulation
from tests.simulation.simulation import Simulation
from tests.simulation.until import run_until
from tests.simulation.watch_stream import WATCH_FAULTS

SEEDS = (1, 2, 3, 4, 8, 9, 12, 13, 14, 15, 16, 18, 21, 22, 70, 82, 86)
"""Together they meet all faults; those with many nodes, which cost as much as ten others, are for `make soak`."""
FAULTS = {
    "403 after a restart",
    "API server restarted",
    "lease deleted",
    "others filled the room during a cut",
    "slow link",
    "watch: slow link",
    *(f"{asked}: {fault}" for fault in (*REQUEST_FAULTS, *OUR_FAULTS) for asked in ("binding", "pod")),
    *(f"{written}: {status} by a webhook" for status in (409, 429, 500, 503) for written in ("binding", "status")),
    "eviction refused by a webhook",
    "pod that does not end",
    *(f"watch: {fault}" for fault in (*WATCH_FAULTS, "410", "429")),
    "binding cancelled",
    "binding in doubt for minutes",
    "clock set",
    "cut off",
    "cut off for minutes",
    "former leader goes on while another leads",
    "gang bound",
    "gang bound in one rack",
    "killed",
    "leader lost together with nodes",
    "leader stopped",
    "lease lost",
    "left in order",
    "node recreated under its name",
    "node of many deleted",
    "pod deleted while assumed",
    "pod joined a gang",
    "pod left its gang",
    "pod that waits looked at",
    "pod under a quota",
    "policies swapped",
    "preempted",
    "queue borrows",
    "relist while binding",
    "storm of 410",
}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.timeout(300)
def test_under_any_fault_no_pod_is_lost_bound_twice_or_wrong() -> None:
    run_until(FAULTS, lambda seed: Simulation(seed, steps=120), SEEDS, further=range(100, 150))


@pytest.mark.timeout(300)
def test_under_any_fault_pods_move_within_budgets_and_in_the_end_there_is_peace() -> None:
    run_until(
        {"move evicted", "move landed"}, lambda seed: MovingSimulation(seed, steps=100), (2,), further=range(3, 20)
    )


def test_a_node_that_is_removed_while_a_move_is_searched_ends_nothing() -> None:
    """The pod that was to move has a node without a row then, until the watch shows that the pod is gone."""
    run_until(
        {"move evicted"}, lambda seed: MovingSimulation(seed, steps=150), (520063,), further=range(520064, 520073)
    )


def test_a_workload_moves_on_when_it_has_rested_from_a_replacement_that_came_too_late() -> None:
    """It rests for an hour, so it moves long after everything else is calm; and then there is peace."""

    class Late(MovingSimulation):
        late_seconds = (100.0,)

    run_until({"move pending", "move in the calm"}, lambda seed: Late(seed, steps=100), (3,), further=range(100, 200))


@pytest.mark.timeout(120)
def test_a_standby_that_knows_of_a_gang_without_some_of_its_pods_waits_for_events() -> None:
    """It evicts nobody; what it leaves undone was due in each turn of its loop, a thousand times a second for ever."""
    happens = {"standby began", "rest of a gang evicted"}
    run_until(happens, lambda seed: MovingSimulation(seed, steps=400), (7303,), further=range(7304, 7313))


def test_queues_alone_are_counted_right_while_nodes_come_and_go() -> None:
    happens = {"queue borrows", "pod of a queue placed"}
    run_until(happens, lambda seed: QueueSimulation(seed, steps=60), (7,), further=range(8, 17))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        (530028, 140),  # a gang was short of what a nominated pod lost to one member of it, and kept from the other
        (530035, 400),  # one member is left of a gang, and others of it are nominated
        (550009, 400),  # a member asks that is of another queue than the others, and has no room yet
    ],
)
def test_gangs_evict_and_are_evicted_by_the_rules_of_queues_beside_nominated_pods(seed: int, steps: int) -> None:
    happens = {"eviction judged by the rules of queues", "gang bound"}
    run_until(happens, lambda each: QueueSimulation(each, steps=steps), (seed,), further=range(seed + 1, seed + 10))


def test_in_strict_orders_pods_that_are_backfilled_delay_nobody_and_none_is_lost() -> None:
    happens = {"bound", "unschedulable", "preempted"}
    run_until(happens, lambda seed: BackfillSimulation(seed, steps=60), (18,), further=range(19, 28))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [Simulation, QueueSimulation, BackfillSimulation, MovingSimulation])
def test_a_long_run_finds_nothing(kind: type[Simulation]) -> None:
    """Some faults need long lives and gangs that have been torn apart: runs of 400 steps met none of them."""
    met = kind(20, steps=2000).run()
    assert met["bound"] > 50


def test_a_run_is_replayed_by_its_seed() -> None:
    met = Simulation(5, steps=100).run()
    assert len(met) > 40
    assert Simulation(5, steps=100).run() == met


@pytest.mark.timeout(300)
def test_a_run_is_the_same_in_every_process() -> None:
    """Nothing follows from the hashes of names, which differ between processes."""

    def what_happened(hash_seed: int) -> list[str]:
        command = [sys.executable, "-m", "tests.simulation", "--queues", "--seed", "8000", "--steps", "400"]
        given = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
        ran = subprocess.run(command, env=given, capture_output=True, text=True, timeout=120, check=True)
        return [line for line in ran.stdout.splitlines() if "steps in" not in line]

    first = what_happened(0)
    assert len(first) > 40
    assert what_happened(1) == first
