"""What a scrape of the scheduler shows."""

from __future__ import annotations

import time
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kube_policy_scheduler.cluster.objects import ObjectMeta, Pod, PodSpec
from kube_policy_scheduler.cluster.pods import Templates
from kube_policy_scheduler.daemon.observing.live_metrics import (
    LeaseState,
    LiveMetrics,
    LiveState,
    ShardState,
    SignalRow,
    WatchRow,
    query_label,
)
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics, exponential
from kube_policy_scheduler.daemon.observing.observers import PodBound
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord, ReloadResult


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


def bound(*, seconds: float = 0.001, attempts: int = 1) -> PodBound:
    pod = Templates().pod(Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(scheduler_name="batch")))
    return PodBound(pod, "n1", at=101.0, seconds=seconds, attempts=attempts, queued=100.0)


def test_attempts_have_kube_schedulers_names_and_labels() -> None:
    metrics = SchedulerMetrics(version="1")
    metrics.on_bound(bound(seconds=0.003, attempts=3))
    metrics.on_bound(bound(seconds=0.001, attempts=20))
    found = samples(metrics)
    assert found["scheduler_schedule_attempts_total{profile=batch,result=scheduled}"] == 2
    assert found["scheduler_scheduling_attempt_duration_seconds_count{profile=batch,result=scheduled}"] == 2
    assert found["scheduler_scheduling_attempt_duration_seconds_bucket{le=0.001,profile=batch,result=scheduled}"] == 1
    assert "scheduler_scheduling_attempt_duration_seconds_bucket{le=16.384,profile=batch,result=scheduled}" in found
    assert found["scheduler_pod_scheduling_sli_duration_seconds_count{attempts=3}"] == 1
    assert found["scheduler_pod_scheduling_sli_duration_seconds_count{attempts=15+}"] == 1


def test_one_api_request_is_seen_as_kube_scheduler_shows_it_and_by_resource() -> None:
    metrics = SchedulerMetrics(version="1")
    metrics.api_request(verb="create", resource="pods/binding", code="201", host="10.0.0.1:6443", seconds=0.01)
    found = samples(metrics)
    assert found["rest_client_requests_total{code=201,host=10.0.0.1:6443,method=POST}"] == 1
    assert found["policy_scheduler_api_requests_total{code=201,resource=pods/binding,verb=create}"] == 1


SHARD = ShardState(
    identity="a",
    members=("a", "b"),
    takes_part=False,
    waits_for=("b",),
    nodes=7,
    pods=2,
    passed_on=5,
    given_back=3,
    failed=1,
)


def test_a_replica_that_shares_the_work_tells_its_part() -> None:
    assert not any("shard" in name for name in live())
    found = live(shard=SHARD)
    assert found["policy_scheduler_shard_members{}"] == 2
    assert found["policy_scheduler_shard_ready{}"] == 0
    assert found["policy_scheduler_shard_nodes{}"] == 7
    handed = {
        result: found[f"policy_scheduler_shard_pods_total{{result={result}}}"]
        for result in ("passed_on", "given_back", "failed")
    }
    assert handed == {"passed_on": 5, "given_back": 3, "failed": 1}
    assert not any("leader_election" in name for name in found), "nobody is to think that there is no leader"


@pytest.mark.parametrize("leads", [False, True])
def test_who_leads_is_told_where_there_is_an_election(leads: bool) -> None:
    found = live(lease=LeaseState("policy-scheduler", leads, holder="a"))
    assert found["leader_election_master_status{name=policy-scheduler}"] == leads
    assert found["policy_scheduler_lease_holder{holder=a,name=policy-scheduler}"] == 1
    assert found["policy_scheduler_lease_usable{name=policy-scheduler}"] == 1


def test_a_lease_that_cannot_be_had_is_told() -> None:
    found = live(lease=LeaseState("policy-scheduler", leads=False, trouble="403 Forbidden"))
    assert found["policy_scheduler_lease_usable{name=policy-scheduler}"] == 0
    assert not any("lease_holder" in name for name in found)


def test_each_watch_tells_what_it_does_and_how_old_what_it_shows_is() -> None:
    pods = WatchRow("pods", phase="catching up", late_seconds=3.5, silent_seconds=0.5, restarts=2)
    claims = WatchRow("resourceclaims", phase="absent", late_seconds=0.0, silent_seconds=None, restarts=0)
    found = live(watches=[pods, claims])
    assert {name: value for name, value in found.items() if name.startswith("policy_scheduler_watch_")} == {
        "policy_scheduler_watch_restarts_total{resource=pods}": 2,
        "policy_scheduler_watch_restarts_total{resource=resourceclaims}": 0,
        "policy_scheduler_watch_phase{phase=catching up,resource=pods}": 1,
        "policy_scheduler_watch_phase{phase=absent,resource=resourceclaims}": 1,
        "policy_scheduler_watch_late_seconds{resource=pods}": 3.5,
        "policy_scheduler_watch_late_seconds{resource=resourceclaims}": 0,
        "policy_scheduler_watch_silent_seconds{resource=pods}": 0.5,
    }


def record(result: ReloadResult, *, generation: int, at: float, hash: str | None = "abc") -> ReloadRecord:  # noqa: A002
    return ReloadRecord(result=result, hash=hash, generation=generation, at=at, seconds=0.1)


def test_a_refused_reload_shows_and_the_success_before_it_stays() -> None:
    metrics = SchedulerMetrics(version="1")
    before = samples(metrics)
    assert before["policy_scheduler_policy_last_reload_successful{}"] == 0
    assert before["policy_scheduler_policy_reloads_total{result=refused}"] == 0
    metrics.on_reloaded(record(ReloadResult.ACCEPTED, generation=1, at=100.0))
    metrics.on_reloaded(record(ReloadResult.REFUSED, generation=1, at=200.0, hash="bad"))
    found = samples(metrics)
    assert found["policy_scheduler_policy_last_reload_successful{}"] == 0
    assert found["policy_scheduler_policy_last_reload_success_timestamp_seconds{}"] == 100.0
    assert found["policy_scheduler_policy_info{generation=1,hash=abc}"] == 1
    assert found["policy_scheduler_policy_reloads_total{result=refused}"] == 1


def test_only_the_policies_in_use_have_an_info_line() -> None:
    metrics = SchedulerMetrics(version="1")
    metrics.on_reloaded(record(ReloadResult.ACCEPTED, generation=1, at=1.0, hash="one"))
    metrics.on_reloaded(record(ReloadResult.ACCEPTED, generation=2, at=2.0, hash="two"))
    lines = [name for name in samples(metrics) if name.startswith("policy_scheduler_policy_info")]
    assert lines == ["policy_scheduler_policy_info{generation=2,hash=two}"]


def test_what_is_live_is_asked_for_at_each_scrape() -> None:
    pending = {"active": 1}
    signals = [
        SignalRow("cpu", age_seconds=3.0, degraded=False, series=5, missing_nodes=0, fetch_seconds=0.02),
        SignalRow("new", age_seconds=None, degraded=True, series=0, missing_nodes=None, fetch_seconds=0.0),
    ]
    metrics = SchedulerMetrics(version="1.2")
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
    one, other = SchedulerMetrics(version="1"), SchedulerMetrics(version="1")
    one.preemption_attempts.inc()
    assert samples(one)["scheduler_preemption_attempts_total{}"] == 1
    assert samples(other)["scheduler_preemption_attempts_total{}"] == 0


def test_children_are_looked_up_once() -> None:
    metrics = SchedulerMetrics(version="1")
    assert metrics.schedule_attempts.of("scheduled", "x") is metrics.schedule_attempts.of("scheduled", "x")
    assert metrics.schedule_attempts.of("scheduled", "x") is not metrics.schedule_attempts.of("error", "x")


def test_no_line_is_spent_on_creation_times() -> None:
    metrics = SchedulerMetrics(version="1")
    metrics.on_bound(bound())
    assert not [name for name in samples(metrics) if "_created" in name]
    assert [name for name in samples(metrics) if name.startswith("process_resident_memory_bytes")]


def test_a_query_label_is_one_short_line() -> None:
    assert query_label("sum by (node)\n  (up)") == "sum by (node) (up)"
    assert len(query_label("x" * 500)) == 120


def test_buckets_are_kube_schedulers() -> None:
    assert exponential(0.001, 2, 15)[0] == 0.001
    assert round(exponential(0.001, 2, 15)[-1], 3) == 16.384


def test_counting_an_attempt_is_cheap_enough_for_the_hot_path() -> None:
    metrics = SchedulerMetrics(version="1")
    best = min(_timed(metrics) for _ in range(5))
    assert best < 500e-6, "a decision takes 100 µs; counting it took 2 µs when this was written"


def _timed(metrics: SchedulerMetrics) -> float:
    one = bound()
    started = time.perf_counter()
    for _ in range(1000):
        metrics.on_bound(one)
    return (time.perf_counter() - started) / 1000
