"""Nominated pods beside others that want their room: each counts once, and a gang counts as a whole."""

from __future__ import annotations

import msgspec
import pytest

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.guarantees import Guarantees
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.evaluate.nominations import nominate
from kube_policy_scheduler.framework.preempt.reclaim import unit_that_asks
from kube_policy_scheduler.framework.preempt.units import QueueUnits
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.framework.quota import has_precedence, parts_of
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.simulation.run import Rules, SimulatedAlgorithm
from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant
from tests.policy.queue_worlds import GPU, World

QUEUES = f"""
queue a for pods where pod.label.q == "a" min {GPU} 2000
queue b for pods where pod.label.q == "b"
gang by pod.label.q size 3 if pod.label.q == "a" and pod.priority == 1
"""


def world() -> tuple[World, PodInfo]:
    """Return a node with a pod of a, to which one of b is nominated, which borrows."""
    made = World.of(QUEUES, 6)
    made.usage.quota_of(made.pod("a").template)
    made.runs("a", 1)
    borrows = made.pod("b")
    made.cluster.nominate(borrows, "n0")
    return made, borrows


def queued(pod: PodInfo) -> QueuedPod:
    return QueuedPod(pod, queued=Steady(0.0), timestamp=Steady(0.0))


@pytest.mark.parametrize("is_nominated", [False, True])
def test_what_is_promised_to_a_pod_counts_once(is_nominated: bool) -> None:
    made, borrows = world()
    asks = made.pod("a")
    if is_nominated:
        made.cluster.nominate(asks, "n0")
    assert has_precedence(made.cluster, borrows, asks) is False, "it is within what its queue is guaranteed"
    assert has_precedence(made.cluster, borrows, made.pod("a")) is is_nominated, "beside another one it would not be"


@pytest.mark.parametrize(("together", "loses"), [(1, True), (2, False)])
def test_who_is_nominated_takes_room_as_what_its_gang_is_as_a_whole(together: int, loses: bool) -> None:
    made, borrows = world()
    members = [made.pod("a") for _ in range(together)]
    losers = nominate(made.cluster, queued(members[0]), "n0", together=parts_of(made.usage, members))
    assert losers == ([borrows] if loses else [])
    assert made.cluster.is_nominated(borrows.uid) is not loses


@pytest.mark.parametrize("nominated", [0, 1, 2])
def test_members_that_were_promised_room_do_not_need_it_again(nominated: int) -> None:
    made = World.of(QUEUES, 6)
    made.usage.quota_of(made.pod("a").template)
    rules = Rules(PolicyVariant("t", made.rules), preempts=True)
    algorithm = SimulatedAlgorithm(made.cluster, lambda: Steady(made.now), rules, Signals.EMPTY, seed=0)
    made.cluster.nominate(made.pod("b"), "n0")
    for _ in range(nominated):
        made.cluster.nominate(made.pod("a", priority=1), "n0")
    member = queued(made.pod("a", priority=1))
    member.groups = tuple(each.group for each in rules.gang_requirements(member, algorithm.frame))
    lacking = [member.pod] * (3 - nominated)
    assert algorithm.frame_with_gang(member).together == parts_of(made.usage, lacking)


def test_the_fair_order_counts_what_is_promised_to_a_pod_once() -> None:
    made, borrows = world()
    usage, queue = made.usage, made.queue("b")
    other = made.pod("b")
    before = usage.order(queue, usage.asks(borrows))
    assert usage.order(queue, usage.asks(other)) > before
    made.cluster.nominate(borrows, "")
    assert usage.order(queue, usage.asks(borrows)) == before


def test_shares_are_parts_of_what_usable_nodes_offer() -> None:
    made = World.of(QUEUES, 6, 6)
    made.runs("b", 3)
    assert made.usage.share(made.queue("b")) == 3 / 12
    node = made.cluster.nodes.infos[made.cluster.nodes.rows["n1"]].node
    made.cluster.set_node(msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True)))
    assert made.usage.share(made.queue("b")) == 3 / 6


@pytest.mark.parametrize("name", ["first", "last"])
def test_a_unit_that_asks_comes_after_those_that_were_promised_room(name: str) -> None:
    """Whatever their uids: the pod that is nominated is guaranteed, so the other one would borrow."""
    made = World.of(QUEUES, 6)
    made.usage.quota_of(made.pod("a").template)
    made.cluster.nominate(made.pod("a", 1.5, name="here"), "n0")
    asks, rules = made.pod("a", 1, name=name), made.rules.queues
    assert rules is not None
    made.queued[asks.uid] = made.now
    units = QueueUnits(made.cluster, made.usage, rules, now=made.now, without=(asks.uid,))
    unit = unit_that_asks(made.frame(asks), rules, (asks,))
    assert Guarantees(made.usage, units.of).rank_after(unit, made.queue("a"), ()) is None
