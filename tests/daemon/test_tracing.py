"""What an attempt to schedule a pod looks like as a trace."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kube_policy_scheduler.adapters.open_telemetry import FinishedSpan
from kube_policy_scheduler.daemon.observing import tracing as tracing_module
from kube_policy_scheduler.daemon.observing.observers import AttemptFailed, ClaimsBound, PodBound
from kube_policy_scheduler.daemon.observing.tracing import DecisionTracer, trace_of
from tests.daemon.deciding_stage import NOW, Stage, policies

WEB = "filter node.free.cpu > 0\nscore node.free.cpu"


@dataclass
class Sink:
    """Keeps what it is given."""

    sent: list[tuple[str, FinishedSpan]] = field(default_factory=list)

    def send(self, span: FinishedSpan, *, trace: str) -> None:
        self.sent.append((trace, span))

    def only(self) -> FinishedSpan:
        ((_, span),) = self.sent
        return span


@pytest.fixture
def stage() -> Stage:
    return Stage(policies(WEB))


def test_a_pod_that_is_bound_waited_was_decided_and_was_bound(stage: Stage) -> None:
    sink, pod = Sink(), stage.pod("web-1")
    tracing = DecisionTracer(sink, share=1.0)

    node = stage.decide(pod, tracing).host
    assert node is not None
    assert sink.sent == []
    tracing.on_bound(PodBound(pod, node, at=NOW + 2.0, seconds=2.0, attempts=1, queued=NOW))

    span = sink.only()
    assert span.attributes == {
        "k8s.pod.name": "web-1",
        "k8s.namespace.name": "shop",
        "k8s.pod.uid": pod.uid,
        "k8s.node.name": node,
        "scheduler.policy": "web",
        "scheduler.result": "scheduled",
        "scheduler.attempt": 1,
    }
    assert [child.name for child in span.children] == ["wait in queue", "decide", "bind"]
    wait, decide, bind = span.children
    assert (decide.began, decide.ended, bind.ended) == (NOW - 0.001, NOW, NOW + 2.0)
    assert wait.ended == decide.began
    assert (decide.attributes["scheduler.nodes"], decide.attributes["scheduler.feasible_nodes"]) == (4, 4)
    for child in span.children:
        assert span.began <= child.began <= child.ended <= span.ended


def test_an_unschedulable_pod_has_its_reason(stage: Stage) -> None:
    sink = Sink()

    stage.decide(stage.pod(cpu="64"), DecisionTracer(sink, share=1.0))

    span = sink.only()
    assert span.attributes["scheduler.result"] == "unschedulable"
    assert [child.name for child in span.children] == ["wait in queue", "decide"]
    assert "Insufficient cpu" in str(span.children[1].attributes["scheduler.message"])
    assert span.error == ""


def test_a_refused_binding_is_an_error(stage: Stage) -> None:
    sink, pod = Sink(), stage.pod()
    tracing = DecisionTracer(sink, share=1.0)

    stage.decide(pod, tracing)
    tracing.on_failed(AttemptFailed(pod, "binding to n0: " + "x" * 5000, at=NOW + 1, seconds=1.0))

    span = sink.only()
    assert span.attributes["scheduler.result"] == "error"
    assert span.error == span.children[-1].error
    assert len(span.error) == 500


def test_the_claims_of_a_pod_are_a_span_before_its_binding(stage: Stage) -> None:
    sink, pod = Sink(), stage.pod()
    tracing = DecisionTracer(sink, share=1.0)

    stage.decide(pod, tracing)
    tracing.on_claims_bound(ClaimsBound(pod, "n0", NOW, 1.5, claims=2, conditions="success", conditions_seconds=1.0))
    tracing.on_bound(PodBound(pod, "n0", at=NOW + 2, seconds=2.0, attempts=1, queued=NOW))

    *_, claims, binding = sink.only().children
    assert (claims.name, claims.ended, binding.name) == ("bind claims", NOW + 1.5, "bind")
    assert claims.attributes == {"scheduler.claims": 2, "scheduler.binding_conditions": "success"}


def test_a_gang_waits_in_its_own_words(stage: Stage) -> None:
    sink, pod = Sink(), stage.pod()
    tracing = DecisionTracer(sink, share=1.0)

    stage.decide(pod, tracing, waits="for its group")
    tracing.on_bound(PodBound(pod, "n0", at=NOW + 60, seconds=60.0, attempts=1, queued=NOW))

    assert sink.only().children[-1].name == "wait for group and bind"


def test_an_attempt_that_broke_before_a_decision_is_traced_too(stage: Stage) -> None:
    sink = Sink()

    DecisionTracer(sink, share=1.0).on_failed(AttemptFailed(stage.pod(), "internal error", at=NOW, seconds=0.5))

    assert (sink.only().began, sink.only().error, sink.only().children) == (NOW - 0.5, "internal error", ())


def test_a_pod_is_traced_with_all_attempts_or_not_at_all(stage: Stage) -> None:
    sink = Sink()
    tracing = DecisionTracer(sink, share=0.3)
    pods = [stage.pod(cpu="64") for _ in range(200)]

    for pod in pods * 2:
        stage.now += 1
        stage.decide(pod, tracing)

    traces = [trace for trace, _ in sink.sent]
    assert 30 <= len(set(traces)) <= 90
    assert sorted(traces) == sorted([*set(traces)] * 2)


def test_what_never_ends_is_forgotten(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_module, "MOST_UNDER_WAY", 5)
    sink = Sink()
    tracing = DecisionTracer(sink, share=1.0)
    first = stage.pod(cpu="1m")

    for pod in (first, *(stage.pod(cpu="1m") for _ in range(5))):
        stage.decide(pod, tracing)
    tracing.on_bound(PodBound(first, "n0", at=NOW, seconds=0.0, attempts=1, queued=NOW))

    assert sink.sent == []


def test_the_trace_is_found_by_the_pods_uid(stage: Stage) -> None:
    uid = "0AF76519-16cd-43dd-8448-eb211c80319c"
    pod = stage.pod()
    pod.uid = uid

    assert trace_of(pod) == "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize("uid", ["", "u1", "0" * 32, "z" * 32])
def test_other_uids_have_a_trace_too(stage: Stage, uid: str) -> None:
    pod = stage.pod()
    pod.uid = uid

    assert len(trace_of(pod)) == 32
    assert int(trace_of(pod), 16) > 0


def test_of_a_burst_some_attempts_are_traced_and_later_ones_again(stage: Stage) -> None:
    sink = Sink()
    tracing = DecisionTracer(sink, share=1.0)

    for _ in range(300):
        stage.decide(stage.pod(cpu="64"), tracing)
    assert len(sink.sent) == 200

    stage.now += 1
    for _ in range(300):
        stage.decide(stage.pod(cpu="64"), tracing)
    assert len(sink.sent) == 250
