"""A pod that the whole scheduler places is a trace at an OpenTelemetry collector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.otlp_collector import Collector
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


def test_an_attempt_is_a_trace_with_the_pods_uid(
    cluster: Cluster, scheduler: StartScheduler, collector: Collector, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
        f"tracing: {{endpoint: {collector.url}, sampledShare: 1}}\n"
    )
    process = scheduler(f"--config={config}", environment={"OTEL_BSP_SCHEDULE_DELAY": "100"}).start_ready()
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("web"))
    cluster.wait_bound("web")

    eventually(lambda: len(collector.spans) == 4, else_=process.log)
    spans = {span.name: span for span in collector.spans}

    assert set(spans) == {"schedule pod", "wait in queue", "decide", "bind"}
    assert {span.trace_id.hex() for span in collector.spans} == {cluster.pod("web")["metadata"]["uid"].replace("-", "")}
    begins = [spans[name].start_time_unix_nano for name in ("schedule pod", "wait in queue", "decide", "bind")]
    assert begins == sorted(begins)
    assert process.terminate() == 0


def test_what_is_left_is_sent_at_the_end(
    cluster: Cluster, scheduler: StartScheduler, collector: Collector, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
        f"tracing: {{endpoint: {collector.url}, sampledShare: 1}}\n"
    )
    process = scheduler(f"--config={config}", environment={"OTEL_BSP_SCHEDULE_DELAY": "60000"}).start_ready()
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("web"))
    cluster.wait_bound("web")
    assert collector.spans == []

    assert process.terminate() == 0

    assert len(collector.spans) == 4
