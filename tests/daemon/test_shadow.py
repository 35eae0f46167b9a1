"""Shadow mode: its reports about pods that another scheduler places, and that it writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.modes.shadow import Nobody, ShadowScheduler
from kube_policy_scheduler.daemon.modes.shadow_report import ShadowReport
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.observers import Compared, Observer, Observers
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.invariants import pod_violations
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.decision_record import decode, encode
from tests.fakes.scheduler_context import context_of

NOW = 1_800_000_000.0
RULES = """
policy apps
filter fits(cpu, mem)
filter node.label.disk == "ssd"
score 10 if node.label.speed == "fast"
score 5 if node.label.speed == "quick"
"""

Json = Any


class Ear(Observer):
    def __init__(self) -> None:
        self.heard: list[Compared] = []

    def on_compared(self, compared: Compared) -> None:
        self.heard.append(compared)


@dataclass
class Stage:
    """A shadow of default-scheduler, and a hand that plays it."""

    rules: str = RULES
    give_up_seconds: float = 600.0
    now: float = NOW
    ear: Ear = field(default_factory=Ear)

    def __post_init__(self) -> None:
        self.metrics = SchedulerMetrics(version=lambda: "1")
        self.report = ShadowReport(self.metrics.shadow, kept=10, clock=lambda: self.now, names=("default-scheduler",))
        self.log = DecisionLog(DecisionLogSettings(detail_share=1.0), seed=0, replica="r", stopwatch=lambda: 0.0)
        self.cluster = Cluster()
        nobody = Nobody()
        self.shadow = ShadowScheduler(
            context_of(
                nobody,
                self.cluster,
                observer=Observers([self.ear, self.report, self.log]),
                clock=lambda: self.now,
                stopwatch=lambda: 0.0,
            ),
            give_up_seconds=self.give_up_seconds,
        )
        self.use(self.rules)

    def use(self, rules: str) -> None:
        """Put a policy in force."""
        names = frozenset({"policy-scheduler"})
        loaded = load([Source("apps.policy", rules)], default_schedulers=names)
        assert loaded.policy_set is not None, loaded.diagnostics
        watched = frozenset({"default-scheduler"})
        self.shadow.use_policies(LivePolicies(loaded.policy_set, scheduler_names=names, watched=watched))
        self.log.use_policies(loaded.policy_set, hash="h")

    def add_node(self, name: str, *, cpu: str = "4", **labels: str) -> None:
        node = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
        }
        self.shadow.event_handlers.node_changed(msgspec.convert(node, objects.Node))

    def see(self, name: str, **changes: Json) -> None:
        """Show a pod as the watch does."""
        self.shadow.event_handlers.pod_changed(_pod(name, **changes))

    def look(self) -> None:
        """Let the shadow decide what it can."""
        self.shadow.keep_queue()
        self.shadow.schedule_batch()

    def last(self) -> tuple[str, str, str]:
        """Return verdict, our node and theirs of the last comparison."""
        last = self.ear.heard[-1]
        return last.verdict.value, last.ours, last.theirs


def _pod(
    name: str,
    *,
    cpu: str = "1",
    node: str = "",
    nominated: str = "",
    scheduler: str = "default-scheduler",
    priority: int = 0,
    version: int = 1,
    **metadata: Json,
) -> objects.Pod:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"u-{name}",
                "resourceVersion": str(version),
                **metadata,
            },
            "spec": {
                "schedulerName": scheduler,
                "nodeName": node,
                "priority": priority,
                "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            },
            "status": {"phase": "Pending", "nominatedNodeName": nominated},
        },
        objects.Pod,
    )


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.add_node("fast", disk="ssd", speed="fast")
    made.add_node("quick", disk="ssd", speed="quick")
    made.add_node("slow", disk="ssd")
    made.add_node("hdd", speed="fast")
    return made


@pytest.mark.parametrize("decided_before", [True, False], ids=["decided", "bound before we decided"])
@pytest.mark.parametrize(
    ("theirs", "verdict", "margin"),
    [("fast", "agreed", 0.0), ("quick", "differed", 0.5), ("slow", "differed", 1.0), ("hdd", "rejected", None)],
)
def test_a_pod_is_compared_when_it_is_bound(
    theirs: str, verdict: str, margin: float | None, decided_before: bool, stage: Stage
) -> None:
    stage.see("p")
    if decided_before:
        stage.look()
    assert stage.ear.heard == []
    stage.see("p", node=theirs)
    assert stage.last() == (verdict, "fast", theirs)
    assert stage.ear.heard[-1].margin == margin
    assert stage.ear.heard[-1].late is not decided_before
    assert stage.cluster.node_of("u-p") == theirs, "the other's placement counts"
    assert len(stage.shadow.queue) == 0


def test_a_rejected_node_is_reported_with_the_clause(stage: Stage) -> None:
    stage.see("p")
    stage.see("p", node="hdd")
    found = stage.ear.heard[-1]
    assert 'node.label.disk == "ssd"' in found.why
    (clause,) = found.clauses
    sample = stage.metrics.registry.get_sample_value
    labels = {"policy": "apps", "clause": clause}
    assert sample("policy_scheduler_shadow_refusals_total", labels) == 1


def test_a_node_that_the_policy_rates_as_high_is_agreed_upon(stage: Stage) -> None:
    stage.add_node("fast-2", disk="ssd", speed="fast")
    for name in ("a", "b", "c", "d"):
        stage.see(name)
        stage.see(name, node="fast-2")
    assert {each.verdict.value for each in stage.ear.heard} == {"agreed"}


GANG = """
policy apps
gang by pod.label.job size number(pod.label.size) within one rack if pod label job
score 100 if node.label.rack == "small"
"""


def gang_stage() -> Stage:
    """Return a rack that scores best and has two places, and one with four."""
    made = Stage(GANG)
    for number in range(4):
        rack = "small" if number < 2 else "large"
        made.add_node(f"{rack}{number}", cpu="1" if rack == "small" else "2", rack=rack)
    return made


def test_a_gang_is_decided_as_a_whole_and_compared_in_its_domain() -> None:
    stage = gang_stage()
    for number in range(3):
        stage.see(f"m{number}", labels={"job": "j", "size": "3"})
    stage.look()
    assert stage.cluster.pods == {}, "nothing counts"
    assert stage.shadow.waiting_pods.planned() == set(), "the other carries it out"
    stage.see("m0", labels={"job": "j", "size": "3"}, node="large2")
    assert stage.last()[0] == "agreed"
    assert stage.ear.heard[-1].late is False
    stage.see("m1", labels={"job": "j", "size": "3"}, node="small0")
    verdict, ours, _ = stage.last()
    assert (verdict, ours[:5]) == ("rejected", "large"), "the others are in the other rack"
    assert "outside rack=large, where the gang is" in stage.ear.heard[-1].why


def test_a_gang_that_lacks_pods_or_a_domain_gets_no_node() -> None:
    stage = gang_stage()
    stage.see("m0", labels={"job": "j", "size": "3"})
    stage.look()
    stage.see("m0", labels={"job": "j", "size": "3"}, node="large2")
    assert stage.last() == ("not-placed", "", "large2")
    assert "waiting for minCount pods from a gang" in stage.ear.heard[-1].why
    for number in range(5):
        stage.see(f"k{number}", labels={"job": "k", "size": "5"})
    stage.look()
    stage.see("k0", labels={"job": "k", "size": "5"}, node="large2")
    assert stage.last() == ("not-placed", "", "large2")
    assert "rack large lacks 2 cpu: 5 requested by 5 pods, 3 free" in stage.ear.heard[-1].why


def test_deciding_reserves_nothing(stage: Stage) -> None:
    for number in range(20):
        stage.see(f"p{number}")
    stage.look()
    assert stage.cluster.pods == {}
    assert stage.shadow.context.cluster.assumed == {}


def test_each_pod_is_compared_on_what_the_other_did_so_far(stage: Stage) -> None:
    for number in range(5):
        stage.see(f"p{number}")
    stage.look()
    for number in range(4):
        stage.see(f"p{number}", node="fast")
        assert stage.last() == ("agreed", "fast", "fast")
    stage.see("p4", node="quick")
    assert stage.last() == ("agreed", "quick", "quick"), "fast is full by then"


def test_a_pod_that_the_policy_rejects_on_every_node_is_reported(stage: Stage) -> None:
    stage.see("big", cpu="5")
    stage.look()
    stage.see("big", cpu="5", node="hdd")
    assert stage.last() == ("not-placed", "", "hdd")
    assert "Insufficient cpu" in stage.ear.heard[-1].why


def test_an_event_that_helps_has_a_refused_pod_decided_again(stage: Stage) -> None:
    stage.see("big", cpu="5")
    stage.look()
    stage.add_node("large", cpu="8", disk="ssd")
    stage.see("big", cpu="5", node="large")
    assert stage.last() == ("agreed", "large", "large")


def test_a_pod_that_no_policy_governs_is_not_placed() -> None:
    stage = Stage(rules='policy apps\nfor pods where pod.namespace == "elsewhere"\nscore 1\n')
    stage.add_node("n")
    stage.see("p")
    stage.see("p", node="n")
    assert stage.last() == ("not-placed", "", "n")
    assert "no policy governs" in stage.ear.heard[-1].why


def test_a_held_pod_is_not_placed() -> None:
    stage = Stage(rules='policy apps\nhold if pod.name == "p" else "too early"\n')
    stage.add_node("n")
    stage.see("p")
    stage.see("p", node="n")
    assert stage.last() == ("not-placed", "", "n")
    assert "too early" in stage.ear.heard[-1].why


def test_pods_of_others_and_pods_that_came_bound_are_not_compared(stage: Stage) -> None:
    stage.see("static", node="fast")
    stage.see("ours", scheduler="policy-scheduler")
    stage.see("ours", scheduler="policy-scheduler", node="fast")
    assert stage.ear.heard == []


def test_a_deleted_pod_is_counted_once_we_would_have_placed_it(stage: Stage) -> None:
    stage.see("p")
    stage.look()
    stage.shadow.event_handlers.pod_deleted(_pod("p"))
    assert stage.last() == ("gone", "fast", "")
    stage.see("undecided")
    stage.shadow.event_handlers.pod_deleted(_pod("undecided"))
    assert len(stage.ear.heard) == 1


def test_a_pod_that_is_never_bound_is_given_up_once_and_still_compared(stage: Stage) -> None:
    stage.see("p")
    stage.look()
    stage.now += 599
    stage.look()
    assert stage.ear.heard == []
    stage.now += 2
    stage.look()
    stage.look()
    assert [each.verdict.value for each in stage.ear.heard] == ["not-bound"]
    stage.see("p", node="slow")
    assert stage.last() == ("differed", "fast", "slow")
    assert len(stage.ear.heard) == 2


def test_after_an_eviction_by_the_other_our_earlier_decision_counts(stage: Stage) -> None:
    for name in ("fast", "quick", "slow"):
        stage.see(f"on-{name}", cpu="3", node=name)
    stage.see("urgent", cpu="3", priority=10)
    stage.look()
    stage.see("urgent", cpu="3", priority=10, nominated="slow", version=2)
    stage.shadow.event_handlers.pod_deleted(_pod("on-slow", cpu="3", node="slow"))
    stage.look()
    assert "slow" in stage.cluster.nominated, "the room that the other keeps is kept"
    stage.see("urgent", cpu="3", priority=10, node="slow", version=3)
    verdict, ours, theirs = stage.last()
    assert theirs == "slow"
    assert (verdict == "agreed") is (ours == "slow")
    assert ours in ("fast", "quick", "slow"), "we would have evicted too"
    assert stage.cluster.nominated == {}


def test_a_nomination_of_the_others_does_not_make_us_agree(stage: Stage) -> None:
    stage.see("p", nominated="slow")
    stage.look()
    stage.see("p", node="slow")
    assert stage.last() == ("differed", "fast", "slow")


def test_new_policies_decide_pending_pods_again(stage: Stage) -> None:
    stage.see("p")
    stage.look()
    stage.use('policy apps\nscore 1 if node.label.speed == "quick"\n')
    stage.look()
    stage.shadow.event_handlers.pod_deleted(_pod("p"))
    assert stage.last() == ("gone", "quick", "")


def test_every_pod_that_waits_is_in_its_place(stage: Stage) -> None:
    for name, cpu in (("fits", "1"), ("big", "64")):
        stage.see(name, cpu=cpu)
    stage.see("preempting", nominated="slow")
    stage.look()
    queue, cluster = stage.shadow.queue, stage.cluster
    assert list(queue.misplaced()) == []
    for queued in queue:
        assert list(pod_violations(cluster, queued, {})) == []


def test_the_report_adds_up_by_policy(stage: Stage) -> None:
    for number, node in enumerate(("fast", "slow", "hdd")):
        stage.see(f"p{number}")
        stage.see(f"p{number}", node=node)
    summary = stage.report.summary()
    assert summary["pods"] == 3
    assert summary["verdicts"]["agreed"] == summary["verdicts"]["differed"] == summary["verdicts"]["rejected"] == 1
    assert summary["policies"]["apps"]["meanMargin"] == 0.5
    assert [each["pod"] for each in stage.report.last(2)] == ["shop/p2", "shop/p1"]
    sample = stage.metrics.registry.get_sample_value
    assert sample("policy_scheduler_shadow_pods_total", {"policy": "apps", "verdict": "differed"}) == 1
    assert sample("policy_scheduler_shadow_margin_sum", {"policy": "apps"}) == 1.0


def test_the_decision_log_keeps_both_nodes(stage: Stage) -> None:
    stage.see("p")
    stage.see("p", node="quick")
    (entry,) = stage.log.entries()
    record = decode(encode(stage.log.record(entry)))
    assert (record.outcome.value, record.node, record.theirs) == ("shadow", "fast", "quick")
    assert (record.verdict, record.margin, record.policy) == ("differed", 0.5, "apps")
    assert record.top[0].node == "fast"


async def test_a_shadow_has_no_hands(stage: Stage) -> None:
    with pytest.raises(AssertionError, match="binds nothing"):
        await stage.shadow.context.binder.bind(namespace="d", name="p", uid="u", node="n")
