"""What `simulate` says about its runs: a column for each thing that happened in one of them, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from kube_policy_scheduler.tooling.simulation.results import Result, queue_table, table
from kube_policy_scheduler.tooling.simulation.run import Run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario
from tests.tooling.simulation.scenarios import node, pod, simulated
from tests.tooling.simulation.test_changing_nodes import owned
from tests.tooling.simulation.test_changing_nodes import simulated as with_events
from tests.tooling.simulation.test_queues import NODES, QUEUES, RECLAIM, team

ALWAYS = {"policy", "placed", "pending", "wait", "p95"}
BY_EVENT = {"evicted", "given back", "restarted", "lost", "dropped"}
GONE = [{"at": "20s", "remove": "a"}]


def quiet() -> Run:
    return simulated([Arrival(0, "p", pod(), 60)], nodes=NODES)


def evicts() -> Run:
    return simulated([*team("a", 8), *team("b", 4, at=60, lasts=100)], nodes=NODES, by=RECLAIM)


def restarts() -> Run:
    more: list[dict[str, Any]] = [*GONE, {"at": "50s", "add": {"name": "b", "cpu": 4, "mem": "8Gi"}}]
    return with_events([Arrival(0, "p", owned(pod(cpu="3")), 60)], nodes=[node("a")], events=more)


def loses() -> Run:
    return with_events([Arrival(0, "p", pod(cpu="3"), 60)], nodes=[node("a")], events=GONE, bare_pods="end")


@pytest.mark.parametrize(
    ("made", "column", "text"),
    [(quiet, "", ""), (evicts, "evicted", "4"), (restarts, "restarted", "1"), (loses, "lost", "1")],
    ids=["quiet", "evicted", "restarted", "lost"],
)
def test_there_is_a_column_for_what_happened(made: Any, column: str, text: str) -> None:
    found, scenario = made(), Scenario(NODES, [])
    shown = table([Result("one", (found,)), Result("quiet", (quiet(),))], scenario)
    assert {*shown.head} >= ALWAYS
    assert BY_EVENT & {*shown.head} - {"evicted"} == ({column} - {"evicted", ""})
    assert ("evicted" in shown.head) is bool(found.evicted)
    if column:
        at = shown.head.index(column)
        assert [row[at] for row in shown.rows] == [text, "0"]


def test_pods_that_are_dropped_wait_for_nothing() -> None:
    found = simulated([Arrival(0, "p", pod(cpu="64"), 60)], nodes=NODES, drops=True)
    shown = table([Result("one", (found,))], Scenario(NODES, [], drops=True))
    assert {"dropped"} <= {*shown.head}
    assert not {"pending", "wait", "p95"} & {*shown.head}


def test_of_a_queue_it_says_how_long_pods_waited_and_whose_child_it_is() -> None:
    uses = {use.queue: use for use in Result("one", (evicts(),)).queue_uses()}
    assert uses["b"].wait_seconds == (30, 30, 30)
    assert uses["a"].wait_seconds == pytest.approx((400 / 12, 100, 100))
    shown = queue_table([Result("one", (evicts(),))])
    assert shown is not None
    waits = {row[0]: row[shown.head.index("wait")] for row in shown.rows if row[0]}
    assert waits == {"a": "33.3s", "b": "30s"}

    tree = QUEUES.replace("queue a ", "queue all\nqueue a of all ").replace("queue b ", "queue b of all ")
    nested = simulated(team("a", 2), nodes=NODES, by=tree)
    assert {use.queue: use.parent for use in Result("one", (nested,)).queue_uses()} == {
        "all": None,
        "a": "all",
        "b": "all",
    }
