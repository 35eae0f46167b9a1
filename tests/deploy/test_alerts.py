"""Each alert fires when its fault is made, and is silent before, afterwards, and in a busy hour.

A fault is made in what exports the metrics, and scraped every minute; promtool says when the alerts fire.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.adapters.kube.outbox import Backlog, OutboxCounts
from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaState
from kube_policy_scheduler.daemon.observing.canaries import Canaries, Comparison
from kube_policy_scheduler.daemon.observing.live_metrics import (
    LeaseState,
    LiveMetrics,
    LiveState,
    PendingCensus,
    ShardState,
    SignalRow,
    WatchRow,
)
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.model_watch import ModelWatch
from kube_policy_scheduler.daemon.observing.observers import AttemptFailed, PodBound
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord, ReloadResult
from kube_policy_scheduler.lang.model_card import InputCard, ModelCard, OutcomeCard
from kube_policy_scheduler.policy.answer import Answers
from tests.daemon.deciding_stage import Stage, policies
from tests.daemon.test_metrics import PREDICTING
from tests.deploy.recorded import SCRAPE_SECONDS, TARGET, Recording, firing, metrics_of
from tests.deploy.test_monitoring import SCHEDULER
from tests.fakes.trained_model import CARDS
from tests.simulation.calm import Calm, story

pytestmark = pytest.mark.needs("promtool")

RULES = SCHEDULER.rules()
NAMES = [rule["alert"] for rule in SCHEDULER.alerts()]
BEGINS, ENDS, LENGTH = 20, 80, 150
"""Minutes: of a fault, and of the record."""
EVERY = 6
"""Minutes between two looks at what fires."""
WEB = policies("policy web\nfilter true")
CARD = ModelCard(
    (InputCard("load", low=0.0, high=1.0, edges=(), shares=(1.0,)),),
    outcome=OutcomeCard("load", after_seconds=60.0, mean_absolute_error=0.1),
)


class Replica:
    """What a replica exports while all is well, until a fault changes it."""

    def __init__(self, name: str, *, leads: bool) -> None:
        self.name, self.leads, self.is_up = name, leads, True
        self.metrics = SchedulerMetrics(version=lambda: "1")
        self.stage = Stage(WEB)
        self.live: dict[str, Any] = {}
        self.metrics.registry.register(LiveMetrics(lambda: LiveState(**self.live)))
        self.canaries = Canaries(self.metrics.registry, ask=Answers().answer, stopwatch=lambda: 0.0)
        CARDS["load.onnx"] = CARD
        self.models = ModelWatch(self.metrics.registry, pods=environment().pods, stopwatch=lambda: 0.0)
        self.models.use_policies(PREDICTING)
        (self.model,) = self.models._watched["web"]
        self.model.refresh()
        self.reloaded(ReloadResult.ACCEPTED)

    def reloaded(self, result: ReloadResult, *, hash: str = "abc", owner: str = "") -> None:  # noqa: A002
        origin = "revision 3" if result is ReloadResult.RESTORED else ""
        self.metrics.on_reloaded(
            ReloadRecord(result, generation=1, at=1.0, seconds=0.1, hash=hash, owner=owner, origin=origin)
        )

    def predicted(self, *, error: float) -> None:
        self.models._errors.of("web", "load.onnx").observe(error)

    def works(self) -> None:
        """Be well for a minute."""
        for result in Comparison:
            self.canaries._comparisons.of("next", "web", result.value).inc(5 if result is Comparison.SAME_NODE else 0)
        for _ in range(40):
            if self.leads:
                self.metrics.on_bound(PodBound(self.stage.pod(), "n1", at=1.0, seconds=0.01, attempts=1, queued=0.0))
                self.metrics.algorithm_seconds.observe(0.001)
            self.metrics.api_request(verb="post", resource="pods/binding", code="201", host="a", seconds=0.01)
            self.predicted(error=0.1)
        self.model.drifts = (DriftOf(0.05),)
        self.live = {
            "pending_pods": {"active": 3, "backoff": 0, "unschedulable": 0, "gated": 2},
            "cache_size": {"nodes": 100, "pods": 2000, "assumed_pods": 3},
            "lease": LeaseState("policy-scheduler", leads=self.leads, holder="a"),
            "take_over_seconds": 0.02 if self.leads else None,
            "undecided_seconds": 0.01,
            "new_nodes": {"help": 0, "do_not_help": 0},
            "oldest_pods": {"in_flight": 0.2, "assumed": 0.1, "unschedulable": 0.0},
            "watches": [WatchRow("pods", "watching", 0.0, 0.5, 1), WatchRow("nodes", "watching", 0.0, 0.5, 1)],
            "loops": [SimpleNamespace(name="signals", problem="", breaks=0, idle_seconds=1.0)],
            "signals": [SignalRow("load", 3.0, False, 100, 2, 0.02)],
            "backlogs": {"pod-status": Backlog(2, 0, 1.5, OutboxCounts(sent=10))},
            "decision_records": {"written": 100, "dropped": 0},
            "queues": [queue("research", used=8000), queue("production", used=2000)],
            "queue_pending": {"research": 4, "production": 3},
            "queue_refused": {"research": 4, "production": 0},
        }


class DriftOf:
    """An input that is that far from the training."""

    def __init__(self, index: float) -> None:
        self._index = index

    def index(self) -> float:
        return self._index


def queue(name: str, *, used: int) -> QuotaState:
    return QuotaState(name, None, 1, {"cpu": 8000}, {}, {}, {"cpu": used}, {}, 0.0, 1.0, 3)


def shard(*, members: tuple[str, ...] = ("a", "b"), takes_part: bool = True) -> ShardState:
    return ShardState("a", members, takes_part, (), nodes=7, pods=1, passed_on=0, given_back=0, failed=0)


Fault = Callable[[Replica, Replica, float], object]
"""Changes the leader, or the other replica; the minutes since it began."""


def changes(**state: Callable[[float], Any]) -> Fault:
    return lambda leader, other, minutes: leader.live.update({name: value(minutes) for name, value in state.items()})


def down(leader: Replica, other: Replica, minutes: float) -> None:
    leader.is_up = other.is_up = False


def lease(*, leads: bool, trouble: str = "", of_other: bool = False) -> Fault:
    def make(leader: Replica, other: Replica, minutes: float) -> None:
        (other if of_other else leader).live["lease"] = LeaseState("policy-scheduler", leads=leads, trouble=trouble)

    return make


def shards(leader_sees: ShardState, other_sees: ShardState) -> Fault:
    def make(leader: Replica, other: Replica, minutes: float) -> None:
        leader.live["shard"], other.live["shard"] = leader_sees, other_sees

    return make


def reload(result: ReloadResult, *, of_other: bool = False, hash: str = "bad") -> Fault:  # noqa: A002
    def make(leader: Replica, other: Replica, minutes: float) -> None:
        if not minutes:
            (other if of_other else leader).reloaded(result, hash=hash)

    return make


def each(what: Callable[[Replica], object], *, times: int = 10) -> Fault:
    """Do something that many times between two scrapes."""

    def make(leader: Replica, other: Replica, minutes: float) -> None:
        for _ in range(times):
            what(leader)

    return make


def both(*faults: Fault) -> Fault:
    def make(leader: Replica, other: Replica, minutes: float) -> None:
        for fault in faults:
            fault(leader, other, minutes)

    return make


def moving(minutes: float) -> dict[str, int]:
    """Return where two pods are that no node takes: events send them to their next attempt again and again."""
    place = ("unschedulable", "backoff", "active", "backoff", "backoff")[int(minutes) % 5]
    return {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0} | {place: 2}


FAULTS: dict[str, Fault] = {
    "PolicySchedulerDown": down,
    "PolicySchedulerNoLeader": lease(leads=False),
    "PolicySchedulerTwoLeaders": lease(leads=True, of_other=True),
    "LeaderSchedulesNothing": changes(undecided_seconds=lambda minutes: 60 * minutes),
    "TakeOverSlow": changes(take_over_seconds=lambda _: 53.0),
    "TurnsTooLong": changes(longest_turn_seconds=lambda _: 3.0),
    "LeaseNotUsable": lease(leads=False, trouble="forbidden", of_other=True),
    "CacheStale": changes(watches=lambda minutes: [WatchRow("pods", "retrying", 60 * minutes, 1.0, 7)]),
    "ShardNotReady": shards(shard(), shard(takes_part=False)),
    "ShardsDisagree": shards(shard(), shard(members=("b",))),
    "PolicyReloadFailed": reload(ReloadResult.REFUSED),
    "PoliciesRestored": reload(ReloadResult.RESTORED),
    "PolicySetsDiffer": reload(ReloadResult.ACCEPTED, of_other=True, hash="other"),
    "PolicyMetricDegraded": changes(signals=lambda _: [SignalRow("load", 300.0, True, 100, 100, 0.02)]),
    "PolicyMetricMissesNodes": changes(signals=lambda _: [SignalRow("load", 3.0, False, 60, 40, 0.02)]),
    "CanaryRefuses": each(lambda leader: leader.canaries._comparisons.of("next", "web", "stable_only").inc(), times=1),
    "ModelInputsDrift": each(lambda leader: setattr(leader.model, "drifts", (DriftOf(0.4),)), times=1),
    "ModelPredictsBadly": each(lambda leader: leader.predicted(error=5.0)),
    "PodsUnschedulable": changes(
        pending_pods=moving,
        new_nodes=lambda _: {"help": 1, "do_not_help": 1},
        oldest_pods=lambda minutes: {"in_flight": 0.2, "assumed": 0.1, "unschedulable": 60 * minutes},
    ),
    "SchedulingQueueGrows": changes(pending_pods=lambda minutes: {"active": 100 + 60 * minutes}),
    "SchedulingErrors": each(lambda leader: leader.metrics.on_failed(failed(leader))),
    "SchedulingSlow": each(lambda leader: leader.metrics.algorithm_seconds.observe(0.4)),
    "ApiServerRefuses": each(
        lambda leader: leader.metrics.api_request(
            verb="watch", resource="pods", code="Unreachable", host="a", seconds=1.0
        )
    ),
    "LoopBroken": changes(
        loops=lambda _: [SimpleNamespace(name="signals", problem="broken", breaks=1, idle_seconds=1.0)]
    ),
    "BindingStuck": changes(oldest_pods=lambda minutes: {"in_flight": 60 * minutes, "assumed": 0, "unschedulable": 0}),
    "WritesLate": changes(backlogs=lambda minutes: {"pod-status": Backlog(2, 2, 60 * minutes, OutboxCounts())}),
    "WritesRefused": changes(
        backlogs=lambda minutes: {"pod-status": Backlog(2, 2, 9.0, OutboxCounts(), "pod a", round(4 * minutes))}
    ),
    "SchedulerBooksWrong": both(
        lambda leader, other, minutes: None if minutes else leader.metrics.violated("pod"),
    ),
    "QueueWaitsForGuarantee": changes(queue_refused=lambda _: {"research": 4, "production": 2}),
    "QueuesEvictEachOther": changes(returning_evictors=lambda minutes: round(minutes)),
    "DecisionLogLoses": changes(decision_records=lambda minutes: {"written": 100, "dropped": round(60 * minutes)}),
}  # fmt: skip
"""By alert: what makes it fire."""
OTHERS_TOO = {
    "PoliciesRestored": {"PolicyReloadFailed", "PolicySetsDiffer"},
    "LeaseNotUsable": set(),
    "PolicySchedulerDown": set(),
}
"""Alerts that a fault makes fire besides."""


def failed(replica: Replica) -> AttemptFailed:
    return AttemptFailed(replica.stage.pod(), why="refused", at=1.0, seconds=0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    return tmp_path


def test_each_alert_has_its_fault() -> None:
    assert set(FAULTS) == set(NAMES)


def recorded(fault: Fault | None) -> Recording:
    recording = Recording(metrics_of(RULES))
    leader, other = Replica("a", leads=True), Replica("b", leads=False)
    for scrape in range(LENGTH * 60 // SCRAPE_SECONDS):
        minute = scrape * SCRAPE_SECONDS / 60
        for replica in (leader, other):
            replica.works()
            replica.is_up = True
        if fault is not None and BEGINS <= minute < ENDS:
            fault(leader, other, minute - BEGINS)
        elif minute == ENDS:
            for replica in (leader, other):
                replica.reloaded(ReloadResult.ACCEPTED)
        for replica in (leader, other):
            if replica.is_up:
                recording.scrape(replica.metrics.registry, instance=replica.name)
            else:
                recording.add("up", TARGET | {"instance": replica.name}, 0.0)
        recording.next()
    return recording


@pytest.mark.parametrize("alert", NAMES)
def test_an_alert_fires_while_its_fault_lasts_and_no_other_does(alert: str, folder: Path) -> None:
    found = firing(folder, recorded(FAULTS[alert]), NAMES, at=range(2, LENGTH, EVERY))
    minutes = found.pop(alert, [])
    assert minutes, "it does not fire"
    assert minutes[0] >= BEGINS
    assert max(minutes) < LENGTH - EVERY, "it ends"
    assert minutes == list(range(minutes[0], minutes[-1] + 1, EVERY)), "it does not come and go"
    assert set(found) <= OTHERS_TOO.get(alert, set()), found


def test_a_slow_take_over_is_told_for_half_an_hour_not_as_long_as_the_replica_leads(folder: Path) -> None:
    minutes = firing(folder, recorded(FAULTS["TakeOverSlow"]), ["TakeOverSlow"], at=range(2, ENDS, 2))["TakeOverSlow"]
    assert minutes == list(range(BEGINS, BEGINS + 30, 2))


def test_all_are_silent_while_all_is_well(folder: Path) -> None:
    assert firing(folder, recorded(None), NAMES, at=range(2, LENGTH, EVERY)) == {}


# --- a busy hour -------------------------------------------------------------------------------------------

BUSY = """\
queue research for pods where pod.label.team == "research" min cpu 8
queue batch by pod.label.team min cpu 1
order by queue.share, pod.priority desc, pod.queued
reclaim after 30s
filter fits(cpu)
"""


def state_of(calm: Calm) -> LiveState:
    """Return what the daemon would export of a scheduler at this moment."""
    scheduler = calm.process.scheduler
    census = PendingCensus(scheduler.queue, scheduler.cluster)
    for _ in census.steps():
        pass
    now, oldest = calm.server.now(), census.oldest_unschedulable
    return LiveState(
        pending_pods=census.places(),
        cache_size={"nodes": scheduler.cluster.nodes.size},
        queues=census.queues.states,
        queue_pending=census.queues.pending,
        queue_units=census.queues.units,
        queue_refused=census.queues.rejected,
        new_nodes=dict(zip(("help", "do_not_help"), scheduler.algorithm.awaiting_nodes.numbers, strict=True)),
        oldest_pods={
            "in_flight": scheduler.in_flight.oldest_seconds,
            "unschedulable": now - oldest if oldest is not None else 0.0,
        },
        backlogs={"pod-status": calm.process.statuses.backlog},
        take_over_seconds=scheduler.pace.take_over_seconds,
        undecided_seconds=scheduler.pace.undecided_seconds(has_active=scheduler.queue.has_active()),
        lease=LeaseState("policy-scheduler", leads=True),
    )


async def busy(calm: Calm, recording: Recording, *, stuck: int, minutes: int) -> None:
    """Pods of several teams come, run for a while and end, a little faster than there is room for them."""
    metrics, random = SchedulerMetrics(version=lambda: "1"), Random(3)
    calm.process.observers.add(metrics)
    metrics.registry.register(LiveMetrics(lambda: state_of(calm)))
    metrics.on_reloaded(ReloadRecord(ReloadResult.ACCEPTED, generation=1, at=1.0, seconds=0.1, hash="abc"))
    for number in range(stuck):
        calm.pod(f"stuck-{number}", millis=64_000, team="research")
    made = 0
    for _ in range(minutes):
        for _ in range(6):
            for _ in range(random.randrange(2, 6)):
                made += 1
                team = random.choice(("research", "research", "a", "b", f"t{made % 50}"))
                calm.pod(f"p{made}", millis=random.choice((500, 1000)), team=team)
            await calm.after(10)
            running = [name for name, pod in calm.server.pods.items() if pod["spec"].get("nodeName")]
            for name in running[: max(0, len(running) - 30)]:
                calm.server.finish_pod(name)
        recording.scrape(metrics.registry)
        recording.next()


@pytest.mark.parametrize(("stuck", "expected"), [(0, set()), (2, {"PodsUnschedulable"})])
def test_in_a_busy_hour_only_what_is_wrong_fires(stuck: int, expected: set[str], folder: Path) -> None:
    recording = Recording(metrics_of(RULES))

    async def tell(calm: Calm) -> None:
        await busy(calm, recording, stuck=stuck, minutes=70)

    story(BUSY, tell, cpus=(8, 8, 8, 8, 8))
    bound = recording.values("scheduler_schedule_attempts_total", result="scheduled")
    assert (bound[-1] or 0) > 1000, "it was busy"
    found = firing(folder, recording, NAMES, at=range(2, 70, 4))
    assert set(found) == expected
    if stuck:
        assert found["PodsUnschedulable"] == list(range(found["PodsUnschedulable"][0], 70, 4))
        assert found["PodsUnschedulable"][0] <= 42
