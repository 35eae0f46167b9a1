"""What a scrape of the scheduler shows."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kube_policy_scheduler.adapters.kube.outbox import Backlog, OutboxCounts
from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster.objects import ObjectMeta, Pod, PodSpec
from kube_policy_scheduler.cluster.pods import Templates
from kube_policy_scheduler.cluster.quotas.quota_overview import UnitCounts
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaState
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.modes import shadow_report
from kube_policy_scheduler.daemon.modes.shadow_report import ShadowReport
from kube_policy_scheduler.daemon.observing import live_metrics
from kube_policy_scheduler.daemon.observing.canaries import Canaries
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts, ClauseMetrics
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.live_metrics import (
    LeaseState,
    LiveMetrics,
    LiveState,
    PastUsageState,
    PendingCensus,
    RebalancingState,
    ShardState,
    SignalRow,
    WatchRow,
    label_value,
    series_labels,
)
from kube_policy_scheduler.daemon.observing.metrics import QuickHistogram, SchedulerMetrics, exponential
from kube_policy_scheduler.daemon.observing.model_watch import ModelWatch
from kube_policy_scheduler.daemon.observing.observers import (
    ClaimsBound,
    Compared,
    Decided,
    PodBound,
    PodMoved,
    ShadowOutcome,
)
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord, ReloadResult
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.preemption import Preemption
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, SchedulingQueue
from kube_policy_scheduler.kubernetes_rules import KubernetesRules, KubernetesVersion
from kube_policy_scheduler.lang.model_card import InputCard, ModelCard, OutcomeCard
from kube_policy_scheduler.policy.answer import Answers
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.rebalancing.ledger import MoveOutcome
from kube_policy_scheduler.tooling.rebalancing.moves import Move
from tests.daemon.deciding_stage import NOW, Stage, reading
from tests.exposition import unique_series
from tests.fakes.trained_model import CARDS, names_with_model
from tests.lang.texts import sources

MODEL = InputCard("load", low=0.0, high=1.0, edges=(0.4,), shares=(0.5, 0.5))
PREDICTING = load(
    sources('# in web.policy\nmetric load = promql("load")\nscore model("load.onnx", load)\n'), names_with_model()
).policy_set
assert PREDICTING is not None


def samples(metrics: SchedulerMetrics) -> dict[str, float]:
    """Every exported sample by `name{label=value,...}`."""
    return exported(metrics.registry)


def live(**state: Any) -> dict[str, float]:
    """The same of a scrape at which the state is this."""
    return exported(LiveMetrics(lambda: LiveState(**state)))


def exported(registry: Any) -> dict[str, float]:
    text = generate_latest(registry).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


class Given:
    """All metrics of a daemon, and what they are read from."""

    POLICIES = """\
# in web.policy
filter node.free.cpu > 0 as ready
# in next.policy
canary of web for pods where pod.label.tier == "gold"
filter node.free.cpu > 0 as ready
score promql("load") as calm
"""

    def __init__(self) -> None:
        self.metrics = SchedulerMetrics(version=lambda: "1")
        self.live: dict[str, Any] = {}
        loaded = load(sources(self.POLICIES))
        assert loaded.policy_set is not None, loaded.diagnostics
        self.policies = loaded.policy_set
        self.stage = Stage(self.policies)
        self.shadow = ShadowReport(self.metrics.shadow, kept=1, clock=lambda: NOW)
        counts = ClauseCounts()
        self.log = DecisionLog(
            DecisionLogSettings(detail_share=1.0), seed=0, replica="a", stopwatch=count().__next__, counts=counts
        )
        registry = self.metrics.registry
        self.canaries = Canaries(registry, ask=Answers(cycle=self.stage.cycle).answer, stopwatch=lambda: 0.0)
        self.watch = ModelWatch(registry, pods=environment().pods, stopwatch=lambda: self.stage.now)
        self.predicting = Stage(PREDICTING, cpus=1000)
        registry.register(LiveMetrics(lambda: LiveState(**self.live)))
        registry.register(ClauseMetrics(counts, policies=lambda: self.policies))

    def decide(self, *, cpu: str = "1") -> None:
        pod = self.stage.pod(cpu=cpu, tier="gold")
        self.stage.decide(pod, self.metrics, self.canaries, self.log)

    def predict(self) -> None:
        """Decide a day's pods by a policy with a model, and learn what came of it."""
        CARDS["load.onnx"] = ModelCard((MODEL,), outcome=OutcomeCard("load", 216.0, mean_absolute_error=0.1))
        self.watch.use_policies(PREDICTING)
        stage = self.predicting
        for number in range(402):
            stage.now = NOW + 216 * number
            self.stage.now = stage.now
            stage.signals = Signals({"load": reading("load", {f"n{row}": 0.5 for row in range(4)}, at=stage.now)})
            stage.decide(stage.pod(cpu="1m"), self.watch)

    def bind(self) -> None:
        pod = self.stage.pod(tier="gold")
        self.canaries.on_bound(PodBound(pod, "n1", at=NOW, seconds=0.5, attempts=1, queued=NOW - 2))

    def extend(self) -> None:
        metrics = self.metrics.extender
        metrics.requests.labels("bind", "bound").inc()
        metrics.seconds.labels("bind").observe(2)
        metrics.refusals.of("web", "ready").inc()

    def estimate(self) -> None:
        metrics = self.metrics.estimator
        metrics.answers.labels("computed").inc()
        metrics.computations.labels("template", "whole").inc()
        metrics.seconds.observe(2)

    def use(self) -> None:
        self.canaries.use_policies(self.policies)
        self.log.use_policies(self.policies, hash="")

    def preempt(self) -> None:
        pod = self.stage.pod()
        decision = Decision(pod, None, preemption=Preemption("n1", victims=(pod, pod)))
        frame = Frame(pod, self.stage.cluster, NOW)
        decided = Decided(decision, "web", at=NOW, seconds=0.1, attempts=1, queued=NOW, waits="", frame=frame)
        self.metrics.on_decided(decided)

    def request(self) -> None:
        self.metrics.api_request(verb="post", resource="pods/binding", code="201", host="a:6443", seconds=0.01)

    def reload(self) -> None:
        self.metrics.on_reloaded(record(ReloadResult.ACCEPTED, generation=2, at=100.0))

    def claim(self) -> None:
        pod = self.stage.pod()
        waited = {"conditions": "timeout", "conditions_seconds": 600.0, "drivers": ("gpu.example.com",)}
        bound = ClaimsBound(pod, "n1", NOW, 0.5, claims=2, created="success", contended=1, **waited)
        self.metrics.on_claims_bound(bound)

    def moved(self) -> None:
        move = Move("default/p", "u", "default/ReplicaSet/w", "a", "b", 1, "web", False, 20.0, "score 1", "p:1:1")
        self.metrics.on_moved(PodMoved(move, MoveOutcome.LANDED, NOW))

    def compare(self) -> None:
        verdict, pod = ShadowOutcome.REJECTED, self.stage.pod()
        self.shadow.on_compared(
            Compared(pod, verdict, "web", at=NOW, queued=NOW, clauses=frozenset({"ready"}), margin=0.5, late=True)
        )


def take_long(given: Given) -> None:
    given.metrics.on_bound(bound(seconds=0.5))


def try_often(given: Given) -> None:
    given.metrics.on_bound(bound(attempts=20))


Sample = tuple[Callable[[Given], object], str, float]


def lives(sample: str, value: float, **state: Any) -> Sample:
    """A metric that is read at a scrape."""
    return (lambda given: given.live.update(state), sample, value)


def bound(*, seconds: float = 0.001, attempts: int = 1) -> PodBound:
    pod = Templates().pod(Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(scheduler_name="batch")))
    return PodBound(pod, "n1", at=101.0, seconds=seconds, attempts=attempts, queued=100.0)


def test_attempts_have_kube_schedulers_names_and_labels() -> None:
    metrics = SchedulerMetrics(version=lambda: "1")
    metrics.on_bound(bound(seconds=0.003, attempts=3))
    metrics.on_bound(bound(seconds=0.001, attempts=20))
    found = samples(metrics)
    assert found["scheduler_schedule_attempts_total{profile=batch,result=scheduled}"] == 2
    assert found["scheduler_scheduling_attempt_duration_seconds_count{profile=batch,result=scheduled}"] == 2
    assert found["scheduler_scheduling_attempt_duration_seconds_bucket{le=0.001,profile=batch,result=scheduled}"] == 1
    assert "scheduler_scheduling_attempt_duration_seconds_bucket{le=16.384,profile=batch,result=scheduled}" in found
    assert found["scheduler_pod_scheduling_sli_duration_seconds_count{attempts=3}"] == 1
    assert found["scheduler_pod_scheduling_sli_duration_seconds_count{attempts=15+}"] == 1


SHARD = ShardState(
    identity="a",
    members=("a", "b"),
    takes_part=True,
    waits_for=(),
    nodes=7,
    pods=2,
    passed_on=5,
    given_back=3,
    failed=1,
)


def test_a_replica_has_metrics_of_sharding_or_of_an_election() -> None:
    assert not any("shard" in name for name in live())
    assert not any("leader_election" in name for name in live(shard=SHARD)), "it would read as if there were no leader"


@pytest.mark.parametrize("leads", [False, True])
def test_the_leader_is_exported_if_there_is_an_election(leads: bool) -> None:
    found = live(lease=LeaseState("policy-scheduler", leads, holder="a"))
    assert found["leader_election_master_status{name=policy-scheduler}"] == leads
    assert found["policy_scheduler_lease_holder{holder=a,name=policy-scheduler}"] == 1
    assert found["policy_scheduler_lease_usable{name=policy-scheduler}"] == 1


def test_a_lease_that_cannot_be_acquired_is_not_usable() -> None:
    found = live(lease=LeaseState("policy-scheduler", leads=False, trouble="403 Forbidden"))
    assert found["policy_scheduler_lease_usable{name=policy-scheduler}"] == 0
    assert not any("lease_holder" in name for name in found)


def record(result: ReloadResult, *, generation: int, at: float, hash: str | None = "abc") -> ReloadRecord:  # noqa: A002
    return ReloadRecord(result=result, hash=hash, generation=generation, at=at, seconds=0.1)


PODS = WatchRow("pods", phase="catching up", late_seconds=3.5, silent_seconds=0.5, restarts=2)
REPLICA_SETS = WatchRow(
    "replicasets.apps", phase="watching", late_seconds=0.0, silent_seconds=0.5, restarts=0,
    group="apps", version="v1", name="replicasets", position=7 * 10**15 + 23,
)  # fmt: skip
EVENTS = Backlog(items=4, failing=2, oldest_seconds=9.0, counts=OutboxCounts(sent=7), refusals=3)
LOOP = SimpleNamespace(name="lease", problem="", breaks=3, idle_seconds=1.5)
LOAD = SignalRow("load", age_seconds=3.0, degraded=True, series=5, missing_nodes=2, fetch_seconds=0.02)
REJECTED = "_total{profile=policy-scheduler,result=unschedulable}"
CONDITIONS = "{driver=gpu.example.com,profile=policy-scheduler,status=timeout}"
LEASE = LeaseState("policy-scheduler", leads=True, holder="a")
QUEUE = QuotaState(
    "research", None, 1, guaranteed={"cpu": 4000}, maximum={}, lend={}, used={"cpu": 5500}, borrowed={"cpu": 1500},
    share=0.25, weight=1.0, pods=3, past={"cpu": 500.0}, will={"cpu": 5000},
)  # fmt: skip
UNITS = UnitCounts(Counter(cpu=2), Counter(cpu=3))
PAST_USAGE = PastUsageState(stored_at=100.0, left_out=7, problem="403")
REBALANCING = RebalancingState(
    dry_run=False, stopped="too few landed", passes=3, checked=9, planned=(), reserved=2, outcomes={}
)
CASES: dict[str, Sample] = {
    # as kube-scheduler's
    "scheduler_schedule_attempts": (lambda g: g.decide(cpu="64"), REJECTED, 1),
    "scheduler_scheduling_attempt_duration_seconds": (take_long, "_sum{profile=batch,result=scheduled}", 0.5),
    "scheduler_scheduling_algorithm_duration_seconds": (Given.decide, "_sum{}", 0.001),
    "scheduler_pod_scheduling_sli_duration_seconds": (try_often, "_sum{attempts=15+}", 1),
    "scheduler_pod_scheduling_attempts": (try_often, "_sum{}", 20),
    "scheduler_preemption_attempts": (Given.preempt, "_total{}", 1),
    "scheduler_preemption_victims": (Given.preempt, "_sum{}", 2),
    "rest_client_requests": (Given.request, "_total{code=201,host=a:6443,method=POST}", 1),
    "rest_client_request_duration_seconds": (Given.request, "_sum{host=a:6443,verb=POST}", 0.01),
    "scheduler_pending_pods": lives("{queue=active}", 3, pending_pods={"active": 3}),
    "scheduler_queued_entities": lives(
        "{queue=active,type=podgroup}", 2, queued_entities={("active", "podgroup"): 2}
    ),
    "scheduler_generated_placements": lives("_total{profile=a}", 12, placements={"a": 12}),
    "scheduler_placement_evaluations": lives(
        "_total{profile=a,result=feasible}", 3, placement_evaluations={("feasible", "a"): 3}
    ),
    "informer_store_resource_version": lives(
        "{group=apps,name=kube-scheduler,resource=replicasets,version=v1}", 23, watches=[REPLICA_SETS]
    ),
    "scheduler_cache_size": lives("{type=nodes}", 7, cache_size={"nodes": 7}),
    "policy_scheduler_unschedulable_pods": lives("{new_nodes=help}", 4, new_nodes={"help": 4}),
    "scheduler_unschedulable_pods": lives("{plugin=Fit,profile=a}", 4, unschedulable_pods={("Fit", "a"): 4}),
    "leader_election_master_status": lives("{name=policy-scheduler}", 1, lease=LEASE),
    # devices
    "scheduler_resourceclaim_creates": (Given.claim, "_total{status=success}", 1),
    "dynamic_resource_allocation_resourceclaim_creates": (
        Given.claim,
        "_total{owner_api_group=,owner_api_kind=Pod,status=success}",
        1,
    ),
    "scheduler_dra_bindingconditions_allocations": (Given.claim, f"_total{CONDITIONS}", 1),
    "scheduler_dra_bindingconditions_wait_duration_seconds": (Given.claim, f"_sum{CONDITIONS}", 600),
    "policy_scheduler_claims_binding_duration_seconds": (Given.claim, "_sum{result=success}", 0.5),
    "policy_scheduler_claims_contended": (Given.claim, "_total{}", 1),
    "policy_scheduler_devices": lives("{state=allocated}", 6, devices={"published": 8, "allocated": 6}),
    # quotas with borrowing
    "policy_scheduler_gangs_started_in_domain": lives("_total{topology=rack}", 3, gangs_started={"rack": 3}),
    "policy_scheduler_gang_domains_left": lives("_total{topology=rack}", 2, gang_domains_left={"rack": 2}),
    "policy_scheduler_gangs_without_domain": lives("{topology=rack}", 1, gangs_without_domain={"rack": (1, 2)}),
    "policy_scheduler_gangs_below_minimum": lives("{}", 2, gangs_short=2),
    "policy_scheduler_gang_rest_evicted_pods": lives("_total{}", 3, gang_rest_evicted=3),
    "policy_scheduler_returning_evictors": lives("_total{}", 2, returning_evictors=2),
    "policy_scheduler_above_max_evicted_pods": lives("_total{}", 2, above_max_evicted=2),
    "policy_scheduler_gang_members_missing": lives("{topology=rack}", 2, gangs_without_domain={"rack": (1, 2)}),
    "policy_scheduler_queue_used": lives("{queue=research,resource=cpu}", 5.5, queues=[QUEUE]),
    "policy_scheduler_queue_will": lives("{queue=research,resource=cpu}", 5, queues=[QUEUE]),
    "policy_scheduler_queue_guaranteed": lives("{queue=research,resource=cpu}", 4, queues=[QUEUE]),
    "policy_scheduler_queue_borrowed": lives("{queue=research,resource=cpu}", 1.5, queues=[QUEUE]),
    "policy_scheduler_queue_guaranteed_units": lives(
        "{queue=research,resource=cpu}", 2, queues=[QUEUE], queue_units={"research": UNITS}
    ),
    "policy_scheduler_queue_borrowed_units": lives(
        "{queue=research,resource=cpu}", 3, queues=[QUEUE], queue_units={"research": UNITS}
    ),
    "policy_scheduler_queue_pending_pods": lives("{queue=research}", 3, queue_pending={"research": 3}),
    "policy_scheduler_queue_unschedulable_pods": lives("{queue=research}", 2, queue_refused={"research": 2}),
    "policy_scheduler_queue_reclaimed_pods": lives("_total{queue=research}", 2, queue_reclaimed={"research": 2}),
    "policy_scheduler_queue_evicted_pods": lives(
        "_total{queue=research,rule=share}", 2, queue_evicted={"share": {"research": 2}}
    ),
    "policy_scheduler_queue_past_usage": lives("{queue=research,resource=cpu}", 0.5, queues=[QUEUE]),
    "policy_scheduler_past_usage_stored_timestamp_seconds": lives("{}", 100.0, past_usage=PAST_USAGE),
    "policy_scheduler_past_usage_failing": lives("{}", 1, past_usage=PAST_USAGE),
    "policy_scheduler_past_usage_left_out_queues": lives("{}", 7, past_usage=PAST_USAGE),
    "policy_scheduler_queue_share": lives("{queue=research}", 0.25, queues=[QUEUE]),
    # decisions and policies
    "policy_scheduler_api_requests": (Given.request, "_total{code=201,resource=pods/binding,verb=post}", 1),
    "policy_scheduler_decisions": (Given.decide, "_total{policy=next,result=placed}", 1),
    "policy_scheduler_invariant_violations": (lambda g: g.metrics.violated("pod"), "_total{kind=pod}", 1),
    "policy_scheduler_long_turns": (lambda g: g.metrics.turn_was_long(""), "_total{step=other}", 1),
    "policy_scheduler_policy_last_reload_successful": (Given.reload, "{owner=}", 1),
    "policy_scheduler_policy_last_reload_success_timestamp_seconds": (Given.reload, "{owner=}", 100.0),
    "policy_scheduler_policy_reloads": (Given.reload, "_total{owner=,result=accepted}", 1),
    "policy_scheduler_policy_reload_duration_seconds": (Given.reload, "_sum{}", 0.1),
    "policy_scheduler_policy_info": (Given.reload, "{generation=2,hash=abc,owner=}", 1),
    "policy_scheduler_build_info": (lambda g: None, "{version=1}", 1),
    "policy_scheduler_clause_decisions": (Given.decide, "_total{clause=ready,policy=next}", 1),
    "policy_scheduler_clause_nodes": (Given.decide, "_total{clause=ready,policy=next,result=asked}", 4),
    "policy_scheduler_clause_evaluation_seconds": (Given.decide, "_total{clause=ready,policy=next}", 1),
    "policy_scheduler_missing_values": (Given.decide, "_total{policy=next,statement=calm}", 1),
    "policy_scheduler_canary_comparisons": (Given.decide, "_total{canary=next,policy=web,result=same_node}", 1),
    "policy_scheduler_canary_share": (lambda g: None, "{canary=next,policy=web}", 1),
    "policy_scheduler_pod_scheduling_duration_seconds": (Given.bind, "_sum{policy=next}", 2),
    "policy_scheduler_model_input_drift": (
        Given.predict, "{input=load,model=load.onnx,policy=web}", 0.499 * math.log(500) + 0.5 * math.log(2),
    ),
    "policy_scheduler_model_prediction_error": (Given.predict, "_count{model=load.onnx,policy=web}", 401),
    "policy_scheduler_model_trained_error": (Given.predict, "{model=load.onnx,policy=web}", 0.1),
    # the modes shadow and extender
    "policy_scheduler_shadow_pods": (Given.compare, "_total{policy=web,verdict=rejected}", 1),
    "policy_scheduler_shadow_refusals": (Given.compare, "_total{clause=ready,policy=web}", 1),
    "policy_scheduler_shadow_margin": (Given.compare, "_sum{policy=web}", 0.5),
    "policy_scheduler_shadow_late": (Given.compare, "_total{}", 1),
    "policy_scheduler_extender_requests": (Given.extend, "_total{result=bound,verb=bind}", 1),
    "policy_scheduler_extender_request_duration_seconds": (Given.extend, "_sum{verb=bind}", 2),
    "policy_scheduler_extender_refusals": (Given.extend, "_total{clause=ready,policy=web}", 1),
    "policy_scheduler_estimator_answers": (Given.estimate, "_total{answer=computed}", 1),
    "policy_scheduler_estimator_computations": (Given.estimate, "_total{result=whole,source=template}", 1),
    "policy_scheduler_estimator_computation_seconds": (Given.estimate, "_sum{}", 2),
    "policy_scheduler_asked_extender_duration_seconds": (
        lambda g: g.metrics.asked_extenders.observe("http://gpu", "filter", "timeout", 5.0),
        "_sum{extender=http://gpu,result=timeout,verb=filter}", 5,
    ),
    # the process
    "policy_scheduler_watch_restarts": lives("_total{resource=pods}", 2, watches=[PODS]),
    "policy_scheduler_watch_phase": lives("{phase=catching up,resource=pods}", 1, watches=[PODS]),
    "policy_scheduler_watch_late_seconds": lives("{resource=pods}", 3.5, watches=[PODS]),
    "policy_scheduler_watch_silent_seconds": lives("{resource=pods}", 0.5, watches=[PODS]),
    "policy_scheduler_oldest_pod_seconds": lives("{state=assumed}", 8, oldest_pods={"assumed": 8.0}),
    "policy_scheduler_longest_turn_seconds": lives("{}", 2.5, longest_turn_seconds=2.5),
    "policy_scheduler_pods_waiting_last": lives("{}", 3, waiting_last=3),
    "policy_scheduler_write_backlog": lives("{kind=event}", 4, backlogs={"event": EVENTS}),
    "policy_scheduler_write_failing": lives("{kind=event}", 2, backlogs={"event": EVENTS}),
    "policy_scheduler_write_oldest_seconds": lives("{kind=event}", 9, backlogs={"event": EVENTS}),
    "policy_scheduler_writes": lives("_total{kind=event,result=sent}", 7, backlogs={"event": EVENTS}),
    "policy_scheduler_write_refusals": lives("_total{kind=event}", 3, backlogs={"event": EVENTS}),
    "policy_scheduler_loop_up": lives("{loop=lease}", 1, loops=[LOOP]),
    "policy_scheduler_loop_breaks": lives("_total{loop=lease}", 3, loops=[LOOP]),
    "policy_scheduler_loop_idle_seconds": lives("{loop=lease}", 1.5, loops=[LOOP]),
    "policy_scheduler_rebalance_moves": (Given.moved, "_total{outcome=landed}", 1),
    "policy_scheduler_rebalance_stopped": lives("{}", 1, rebalancing=REBALANCING),
    "policy_scheduler_rebalance_reserved_pods": lives("{}", 2, rebalancing=REBALANCING),
    "policy_scheduler_compiled_kernels": lives("{}", 1, kernels=True),
    "policy_scheduler_kept_results_bytes": lives("{}", 5, kept_bytes=5),
    "policy_scheduler_kept_results_max_bytes": lives("{}", 6, max_kept_bytes=6),
    "policy_scheduler_pod_counters_bytes": lives("{}", 7, counter_bytes=7),
    "policy_scheduler_pod_counters_max_bytes": lives("{}", 8, max_counter_bytes=8),
    "policy_scheduler_device_annotation_protected": lives("{}", 1, device_annotation_protected=True),
    "policy_scheduler_extension_calls_without_value": lives(
        "_total{function=model,reason=unavailable}", 2, extension_failures={("model", "unavailable"): 2}
    ),
    "policy_scheduler_decision_log_records": lives("_total{result=written}", 6, decision_records={"written": 6}),
    "policy_scheduler_signal_age_seconds": lives("{query=load}", 3, signals=[LOAD]),
    "policy_scheduler_signal_degraded": lives("{query=load}", 1, signals=[LOAD]),
    "policy_scheduler_signal_series": lives("{query=load}", 5, signals=[LOAD]),
    "policy_scheduler_signal_missing_nodes": lives("{query=load}", 2, signals=[LOAD]),
    "policy_scheduler_signal_fetch_duration_seconds": lives("{query=load}", 0.02, signals=[LOAD]),
    "policy_scheduler_degraded": lives("{}", 1, signals=[LOAD]),
    "policy_scheduler_take_over_seconds": lives("{}", 0.4, take_over_seconds=0.4),
    "policy_scheduler_undecided_seconds": lives("{}", 70, undecided_seconds=70.0),
    "policy_scheduler_kubernetes_rules_info": lives(
        "{rules=1.38,version=1.39.4}", 1, kubernetes=KubernetesRules(KubernetesVersion(39, 4))
    ),
    "policy_scheduler_lease_holder": lives("{holder=a,name=policy-scheduler}", 1, lease=LEASE),
    "policy_scheduler_lease_usable": lives("{name=policy-scheduler}", 1, lease=LEASE),
    "policy_scheduler_shard_members": lives("{}", 2, shard=SHARD),
    "policy_scheduler_shard_ready": lives("{}", 1, shard=SHARD),
    "policy_scheduler_shard_nodes": lives("{}", 7, shard=SHARD),
    "policy_scheduler_shard_pods": lives("_total{result=given_back}", 3, shard=SHARD),
}  # fmt: skip
"""By metric: what changes it, the sample that changes, and its value then."""


def test_every_metric_has_a_case() -> None:
    families = {family.name for family in Given().metrics.registry.collect()}
    assert set(CASES) == {name for name in families if not name.startswith(("process_", "python_"))}


@pytest.mark.parametrize("name", CASES)
def test_each_metric_follows_what_it_measures(name: str) -> None:
    change, sample, value = CASES[name]
    given = Given()
    before = samples(given.metrics)
    given.use()
    change(given)
    found = samples(given.metrics)
    assert found[name + sample] == pytest.approx(value)
    assert before.get(name + sample) != found[name + sample] or name == "policy_scheduler_build_info"


def test_a_refused_reload_shows_and_the_success_before_it_stays() -> None:
    metrics = SchedulerMetrics(version=lambda: "1")
    before = samples(metrics)
    assert before["policy_scheduler_policy_last_reload_successful{owner=}"] == 0
    assert before["policy_scheduler_policy_reloads_total{owner=,result=refused}"] == 0
    metrics.on_reloaded(record(ReloadResult.ACCEPTED, generation=1, at=100.0))
    metrics.on_reloaded(record(ReloadResult.REFUSED, generation=1, at=200.0, hash="bad"))
    found = samples(metrics)
    assert found["policy_scheduler_policy_last_reload_successful{owner=}"] == 0
    assert found["policy_scheduler_policy_last_reload_success_timestamp_seconds{owner=}"] == 100.0
    assert found["policy_scheduler_policy_info{generation=1,hash=abc,owner=}"] == 1
    assert found["policy_scheduler_policy_reloads_total{owner=,result=refused}"] == 1


def test_only_the_policies_in_use_have_an_info_line() -> None:
    metrics = SchedulerMetrics(version=lambda: "1")
    metrics.on_reloaded(record(ReloadResult.ACCEPTED, generation=1, at=1.0, hash="one"))
    metrics.on_reloaded(record(ReloadResult.ACCEPTED, generation=2, at=2.0, hash="two"))
    lines = [name for name in samples(metrics) if name.startswith("policy_scheduler_policy_info")]
    assert lines == ["policy_scheduler_policy_info{generation=2,hash=two,owner=}"]


def test_live_values_are_read_at_each_scrape() -> None:
    pending = {"active": 1}
    signals = [
        SignalRow("cpu", age_seconds=3.0, degraded=False, series=5, missing_nodes=0, fetch_seconds=0.02),
        SignalRow("new", age_seconds=None, degraded=True, series=0, missing_nodes=None, fetch_seconds=0.0),
    ]
    metrics = SchedulerMetrics(version=lambda: "1.2")
    metrics.registry.register(
        LiveMetrics(
            lambda: LiveState(
                pending_pods=pending,
                cache_size={"nodes": 7},
                signals=signals,
                unschedulable_pods={("NodeResourcesFit", "default"): 4},
            )
        )
    )
    found = samples(metrics)
    assert found["scheduler_pending_pods{queue=active}"] == 1
    assert found["scheduler_cache_size{type=nodes}"] == 7
    assert found["scheduler_unschedulable_pods{plugin=NodeResourcesFit,profile=default}"] == 4
    assert found["policy_scheduler_signal_age_seconds{query=cpu}"] == 3.0
    assert found["policy_scheduler_signal_degraded{query=new}"] == 1
    assert "policy_scheduler_signal_age_seconds{query=new}" not in found
    assert "policy_scheduler_signal_missing_nodes{query=new}" not in found
    assert found["policy_scheduler_degraded{}"] == 1
    assert found["policy_scheduler_build_info{version=1.2}"] == 1
    pending["active"] = 2
    signals.pop()
    found = samples(metrics)
    assert found["scheduler_pending_pods{queue=active}"] == 2
    assert found["policy_scheduler_degraded{}"] == 0
    assert "policy_scheduler_signal_degraded{query=new}" not in found, "a query that is gone has no line"


def test_two_daemons_in_one_process_do_not_share_numbers() -> None:
    one, other = SchedulerMetrics(version=lambda: "1"), SchedulerMetrics(version=lambda: "1")
    one.preemption_attempts.inc()
    assert samples(one)["scheduler_preemption_attempts_total{}"] == 1
    assert samples(other)["scheduler_preemption_attempts_total{}"] == 0


def test_children_are_looked_up_once() -> None:
    metrics = SchedulerMetrics(version=lambda: "1")
    assert metrics.schedule_attempts.of("scheduled", "x") is metrics.schedule_attempts.of("scheduled", "x")
    assert metrics.schedule_attempts.of("scheduled", "x") is not metrics.schedule_attempts.of("error", "x")


def test_creation_times_are_not_exported() -> None:
    metrics = SchedulerMetrics(version=lambda: "1")
    metrics.on_bound(bound())
    assert not [name for name in samples(metrics) if "_created" in name]
    assert [name for name in samples(metrics) if name.startswith("process_resident_memory_bytes")]


def test_a_label_value_is_one_short_line() -> None:
    assert label_value("sum by (node)\n  (up)") == "sum by (node) (up)"
    assert len(label_value("x" * 500)) == 120


def test_buckets_are_kube_schedulers() -> None:
    assert exponential(0.001, 2, 15)[0] == 0.001
    assert round(exponential(0.001, 2, 15)[-1], 3) == 16.384


def test_counting_an_attempt_is_cheap_enough_for_the_hot_path() -> None:
    metrics = SchedulerMetrics(version=lambda: "1")
    best = min(_timed(metrics) for _ in range(5))
    assert best < 500e-6, "a decision takes 100 µs; counting it took 2 µs when this was written"


def _timed(metrics: SchedulerMetrics) -> float:
    one = bound()
    started = time.perf_counter()
    for _ in range(1000):
        metrics.on_bound(one)
    return (time.perf_counter() - started) / 1000


@given(st.lists(st.floats() | st.sampled_from((0.001, 0.002, 0.004, 16.384, 0.0, -1.0))))
def test_a_bucket_found_by_bisection_is_that_of_the_library(values: list[float]) -> None:
    SchedulerMetrics(version=lambda: "1")  # from now on, no metric of this process has a creation time
    shown: list[bytes] = []
    for kind in (Histogram, QuickHistogram):
        registry = CollectorRegistry()
        plain = kind("plain", "…", buckets=exponential(0.001, 2, 15), registry=registry)
        labelled = kind("labelled", "…", ("result",), buckets=exponential(0.001, 2, 15), registry=registry)
        for value in values:
            plain.observe(value)
            labelled.labels("scheduled").observe(value)
        shown.append(generate_latest(registry))

    assert shown[0] == shown[1]


def test_a_histogram_with_labels_has_no_values_of_its_own() -> None:
    with pytest.raises(ValueError, match="label"):
        QuickHistogram("labelled", "…", ("result",), registry=CollectorRegistry()).observe(1.0)


LONG = "sum by (node) (" + "node_load1" * 20
ALIKE = ["up", "  up", "up ", "sum by (node)\n  (up)", "sum by (node) (up)", f"{LONG} + 1)", f"{LONG} + 2)"]


@given(st.lists(st.sampled_from(ALIKE) | st.text(" \n#aé", max_size=8) | st.text("ab ", min_size=115, max_size=130)))
def test_no_two_texts_have_the_same_label(texts: list[str]) -> None:
    labels = series_labels(texts)
    # a text may itself end like a digest, and must not take the place of another
    labels = series_labels([*texts, *labels.values()])
    assert set(labels) >= set(texts)
    assert len(set(labels.values())) == len(labels)
    assert all(len(label) <= 120 and "\n" not in label for label in labels.values())
    assert all(labels[text] == text for text in labels if label_value(text) == text), "what is shown whole stays so"


def test_queries_that_look_alike_have_a_series_each() -> None:
    queries = [f"{LONG} + 1)", f"{LONG} + 2)", "up\n+ 1", "up + 1"]
    rows = [SignalRow(query, 1.0, False, 1, 0, 0.1) for query in queries]
    registry = CollectorRegistry()
    registry.register(LiveMetrics(lambda: LiveState(signals=rows)))
    shown = unique_series(generate_latest(registry).decode())
    labels = {dict(labels)["query"] for name, labels in shown if name == "policy_scheduler_signal_series"}
    assert len(labels) == 4
    assert "up + 1" in labels


def test_what_policies_name_is_exported_only_while_they_are_active() -> None:
    """An owner may name policies, clauses and schedulers otherwise with each change, for ever."""
    metrics = SchedulerMetrics(version=lambda: "1")
    canaries = Canaries(metrics.registry, ask=lambda *_, **__: None, stopwatch=lambda: 0.0)  # type: ignore[arg-type, return-value]
    sizes = set()
    for number in range(20):
        policy, clause = f"web-{number}", f'node.label.disk != "{number}"'
        text = f"policy {policy}\nscheduler s-{number}\nfilter {clause}\n"
        canary = sources(f"canary of {policy} for 50%\nfilter true\n", name="next.policy")
        loaded = load([*sources(text), *canary]).policy_set
        assert loaded is not None
        canaries.use_policies(loaded)
        metrics.use_policies(loaded, served={f"s-{number}"})
        metrics.decisions.of(policy, "placed").inc()
        metrics.schedule_attempts.of("scheduled", f"s-{number}").inc()
        metrics.attempt_seconds.of("scheduled", f"s-{number}").observe(1)
        metrics.shadow.pods.of(policy, "agreed").inc()
        metrics.shadow.margin.of(policy).observe(0.1)
        for refusals in (metrics.shadow.refusals, metrics.extender.refusals):
            refusals.of(policy, clause).inc()
        canaries._bound_seconds.of(policy).observe(1.0)
        found = {name for name in samples(metrics) if not name.startswith(("process_", "python_"))}
        assert any(f"policy={policy}," in name for name in found)
        sizes.add(len(found))
    assert len(sizes) == 1
    assert not any("web-1}" in name or "web-1," in name or "s-1}" in name for name in found)


def test_the_drivers_of_devices_are_bounded_by_size() -> None:
    metrics = SchedulerMetrics(version=lambda: "1")
    drivers = ["gpu.example.com"] * 3 + [f"driver-{number}" for number in range(1000)]
    for driver in drivers:
        waited = {"conditions": "success", "conditions_seconds": 1.0, "drivers": (driver,)}
        metrics.on_claims_bound(ClaimsBound(bound().pod, "n1", NOW, 0.5, claims=1, created="", contended=0, **waited))
    found = [name for name in samples(metrics) if name.startswith("scheduler_dra_bindingconditions_allocations_total")]
    assert len(found) <= 200
    assert any("driver=gpu.example.com" in name for name in found)


def test_a_request_without_an_answer_has_the_code_that_alerts_look_for() -> None:
    metrics = SchedulerMetrics(version=lambda: "1")
    metrics.api_request(verb="watch", resource="pods", code="Unreachable", host="a:6443", seconds=1.0)
    assert samples(metrics)["rest_client_requests_total{code=<error>,host=a:6443,method=GET}"] == 1
    assert samples(metrics)["policy_scheduler_api_requests_total{code=<error>,resource=pods,verb=watch}"] == 1


def test_what_rejects_pods_is_bounded_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner may name the clause that rejects its pods otherwise with each change."""
    monkeypatch.setattr(live_metrics, "MAX_REJECTORS", 3)
    queue, stage = SchedulingQueue(), Stage(load(sources("filter true")).policy_set)  # type: ignore[arg-type]
    clauses = ["large"] * 4 + [f"node.label.x != {number}" for number in range(9)] + ["long " * 100]
    for clause in clauses:
        pod = stage.pod()
        queue.add(pod, NOW)
        queued = queue.get(pod.uid)
        assert queued is not None
        queued.rejectors, queued.place = frozenset({clause}), Place.UNSCHEDULABLE
    census = PendingCensus(queue, stage.cluster)
    for _ in census.steps():
        pass
    found = census.rejections()
    assert len(found) == 4
    assert found["large", "policy-scheduler"] == 4
    assert found["(others)", "policy-scheduler"] == len(clauses) - 4 - 2
    assert all(len(clause) <= 120 for clause, _ in found)
    assert census.oldest_unschedulable == NOW


def test_the_totals_of_a_shadow_are_bounded_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_report, "MOST_NAMES", 10)
    given = Given()
    for policy in ["large"] * 3 + [f"p{number}" for number in range(100)]:
        compared = Compared(
            given.stage.pod(), ShadowOutcome.REJECTED, policy, at=NOW, queued=NOW, clauses=frozenset({f"of {policy}"}),
            margin=0.5,
        )  # fmt: skip
        given.shadow.on_compared(compared)
    found = given.shadow.summary()
    assert found["pods"] == found["verdicts"]["rejected"] == 103
    assert len(found["policies"]) <= 12
    assert found["policies"]["large"]["verdicts"]["rejected"] == 3
    assert found["policies"]["large"]["refusingClauses"] == {"of large": 3}
    assert found["policies"]["(others)"]["verdicts"]["rejected"] > 80
