"""The decision log of an extender: the pod, the answer and the reasons."""

from __future__ import annotations

from typing import Any

from kube_policy_scheduler.adapters.kube.binding import Reason, Refused
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.serving.status_words import explained
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome, decode, encode
from kube_policy_scheduler.tooling.text_table import Terminal
from kube_policy_scheduler.tooling.why.past_decision import lines, recorded_of
from tests.daemon.extender_stage import FakeBinder, Stage, pod

ALL = ["slow", "fast", "hdd"]


def logged(**more: Any) -> tuple[Stage, DecisionLog]:
    """An extender over three nodes, with a log that takes a close look at everything."""
    stage = Stage(**more)
    stage.add_node("slow", disk="ssd", speed="slow")
    stage.add_node("fast", disk="ssd", speed="fast")
    stage.add_node("hdd", disk="hdd", speed="fast")
    ticks = iter(range(10**6))
    log = DecisionLog(
        DecisionLogSettings(detail_share=1.0),
        seed=0,
        replica="r1",
        stopwatch=lambda: float(next(ticks)),
        counts=ClauseCounts(),
    )
    policies = stage.scheduler.algorithm.policies
    log.use_policies(policies.policy_set, hash="abc")  # type: ignore[union-attr]
    stage.observer.add(log)
    return stage, log


def records(log: DecisionLog) -> list[DecisionRecord]:
    """What the log says, as a file would have it."""
    return [decode(encode(log.record(entry))) for entry in log.entries()]


def told(log: DecisionLog) -> str:
    """What `policyctl why` says about the pod."""
    return "\n".join(lines(recorded_of(records(log), "web-1"), to=Terminal()))


async def test_what_passes_is_kept_with_the_refusals_of_the_others() -> None:
    stage, log = logged()
    async with stage.served() as client:
        await client.ask("filter", {"Pod": pod(), "NodeNames": ALL})
    (record,) = records(log)
    assert (record.outcome, record.verb, record.policy) == (Outcome.ANSWERED, "filter", "apps")
    assert (record.nodes, record.feasible, record.attempt) == (3, 2, 1)
    assert [(reason.plugin, reason.nodes) for reason in record.reasons] == [('node.label.disk == "ssd"', 1)]
    assert record.refused == {'node.label.disk == "ssd"': 1}
    assert "2 of 3 nodes fit; kube-scheduler chooses" in explained(log.entries()[0]).why
    assert told(log).startswith("default/web-1 can go to any of the nodes that fitted, as kube-scheduler selects")


async def test_only_the_nodes_that_were_asked_about_are_counted() -> None:
    stage, log = logged()
    async with stage.served() as client:
        await client.ask("filter", {"Pod": pod(), "NodeNames": ["fast", "unheard-of"]})
    (record,) = records(log)
    assert (record.nodes, record.feasible, record.refused, record.reasons) == (2, 1, {}, ())


async def test_an_unschedulable_pod_is_reported_in_kube_schedulers_words_and_repeats_are_counted() -> None:
    stage, log = logged()
    async with stage.served() as client:
        for _ in range(3):
            await client.ask("filter", {"Pod": pod(), "NodeNames": ["hdd"]})
    (record,) = records(log)
    assert (record.outcome, record.repeats) == (Outcome.UNSCHEDULABLE, 2)
    assert record.message.startswith("0/1 nodes are available: 1 node(s) didn't match policy clause")
    assert explained(log.entries()[0]).why == record.message


async def test_the_best_node_is_kept_with_what_each_clause_gave() -> None:
    stage, log = logged()
    async with stage.served() as client:
        await client.ask("filter", {"Pod": pod(), "NodeNames": ALL})
        await client.ask("prioritize", {"Pod": pod(), "NodeNames": ["slow", "fast"]})
    record = records(log)[-1]
    assert (record.outcome, record.verb, record.node, record.ties) == (Outcome.ANSWERED, "prioritize", "fast", 1)
    assert (record.nodes, record.feasible) == (3, 2), "as the filter of this attempt said"
    assert [(each.node, each.total) for each in record.top] == [("fast", 10.0), ("slow", 0.0)]
    assert "it leads slow by 10" in explained(log.entries()[-1]).why
    assert told(log).startswith("default/web-1 fits best on fast, as answered to kube-scheduler")


async def test_a_binding_and_a_refused_one_are_kept() -> None:
    stage, log = logged(binder=FakeBinder())
    body = {"PodName": "web-1", "PodNamespace": "default", "PodUID": "uid-web-1"}
    async with stage.served() as client:
        await client.ask("filter", {"Pod": pod(), "NodeNames": ALL})
        await client.ask("bind", {**body, "Node": "hdd"})
        stage.binder.outcome = Refused(Reason.CONFLICT, "no quota")
        await client.ask("bind", {**body, "Node": "slow"})
    refused, failed = records(log)[1:]
    assert (refused.outcome, refused.node, refused.verb) == (Outcome.BIND_FAILED, "hdd", "bind")
    assert refused.message.startswith("node hdd no longer passes policy apps")
    assert (failed.outcome, failed.node, failed.message) == (
        Outcome.BIND_FAILED, "slow", "binding to slow failed: no quota",
    )  # fmt: skip


async def test_a_pod_of_no_policy_and_a_held_one_are_kept_with_the_reason() -> None:
    stage, log = logged(
        rules='policy apps\nfor pods where pod.label.app == "web"\nhold if pod.name == "web-1" else "no"\n'
    )
    async with stage.served() as client:
        await client.ask("filter", {"Pod": pod(), "NodeNames": ALL})
        await client.ask("filter", {"Pod": pod("x", app="other"), "NodeNames": ALL})
    held, free = records(log)
    assert (held.outcome, held.feasible) == (Outcome.HELD, 0)
    assert (free.outcome, free.policy, free.feasible) == (Outcome.ANSWERED, None, 3)
    assert free.message.startswith("no policy governs this pod")
