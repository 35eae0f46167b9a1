"""Spans arrive at a collector as OTLP over HTTP; an unreachable collector loses only the spans."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kube_policy_scheduler.adapters import open_telemetry
from kube_policy_scheduler.adapters.open_telemetry import FinishedSpan, SpanExporter, TracingUnavailable
from tests.fakes.otlp_collector import Collector
from tests.patience import PATIENCE_SECONDS

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(autouse=True)
def no_thread_goes_on() -> Iterator[None]:
    """The SDK's tries outlast `close`; that they draw random numbers would be seen in the tests after this one."""
    before = threading.enumerate()
    yield
    for thread in threading.enumerate():
        if thread not in before:
            thread.join(PATIENCE_SECONDS)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


def exporter(url: str) -> SpanExporter:
    return SpanExporter(url, service="policy-scheduler", instance="me", version="1")


def test_a_span_arrives_with_its_parts(collector: Collector) -> None:
    spans = exporter(collector.url)
    part = FinishedSpan("bind", 101.0, 102.5, {"k8s.node.name": "n1"}, error="refused")
    whole = FinishedSpan("schedule pod", 100.0, 102.5, {"scheduler.attempt": 2, "k8s.pod.name": "p"}, (part,))

    spans.send(whole, trace=TRACE)
    spans.close()

    assert [path for path, _ in collector.requests] == ["/v1/traces"]
    bind, outer = sorted(collector.spans, key=lambda span: span.name)
    assert (outer.trace_id.hex(), bind.trace_id.hex()) == (TRACE, TRACE)
    assert (outer.parent_span_id, bind.parent_span_id) == (b"", outer.span_id)
    assert (outer.start_time_unix_nano, outer.end_time_unix_nano) == (100_000_000_000, 102_500_000_000)
    assert {each.key: each.value.string_value or each.value.int_value for each in outer.attributes} == {
        "scheduler.attempt": 2,
        "k8s.pod.name": "p",
    }
    assert (bind.status.code, bind.status.message) == (2, "refused")


def test_the_resource_names_the_tracing_process(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=blue")
    spans = exporter(collector.url)
    spans.send(FinishedSpan("a", 1.0, 2.0, {}), trace=TRACE)
    spans.close()

    (resource,) = collector.requests[0][1].resource_spans
    found = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert found["service.name"] == "policy-scheduler"
    assert found["service.instance.id"] == "me"
    assert found["k8s.cluster.name"] == "blue"


def test_a_path_of_the_collector_is_kept(collector: Collector) -> None:
    spans = exporter(f"{collector.url}/ingest/otlp")
    spans.send(FinishedSpan("a", 1.0, 2.0, {}), trace=TRACE)
    spans.close()

    assert [path for path, _ in collector.requests] == ["/ingest/otlp"]


def test_an_unreachable_collector_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_telemetry, "SEND_SECONDS", 0.2)
    with Collector() as gone:
        url = gone.url
    spans = exporter(url)
    began = time.monotonic()

    for number in range(1000):
        spans.send(FinishedSpan("a", number, number + 1.0, {}), trace=TRACE)

    assert time.monotonic() - began < 20  # a guard against waiting for the network, with room for a slow machine
    spans.close()
    assert time.monotonic() - began < 40


def test_without_the_extra_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    with pytest.raises(TracingUnavailable, match=r"run .*install 'kube-policy-scheduler\[tracing\]'"):
        exporter("http://127.0.0.1:1")
