"""Each claim of deploy/SECURITY.md about policies and pods that mean harm, as its bracketed name says."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.process.worker_process import WorkerProcess
from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.builtins.texts import pattern
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.configuration.settings import parse_settings
from kube_policy_scheduler.daemon.logs import JsonLines, TextLines
from kube_policy_scheduler.daemon.main import main
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts, ClauseMetrics
from kube_policy_scheduler.daemon.observing.live_metrics import LiveMetrics, LiveState, PendingCensus
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.policies.live import LivePolicies, PolicyCompiler
from kube_policy_scheduler.daemon.policies.policy_checker import MODULE, PolicyChecker
from kube_policy_scheduler.daemon.policies.reload import PolicyReloader, ReloadResult
from kube_policy_scheduler.daemon.serving.server import shown_settings
from kube_policy_scheduler.daemon.serving.status_page import rendered
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from kube_policy_scheduler.policy.policy_set import load
from tests.daemon.deciding_stage import NOW, Stage, policies
from tests.daemon.status_stage import Scene
from tests.exposition import unique_series
from tests.integration.conditions import eventually
from tests.integration.process import SchedulerProcess

TEXT = (Path(__file__).parents[2] / "deploy" / "SECURITY.md").read_text()
HARM = '<script>alert(1)</script>\n2026-01-01T00:00:00.000Z ERROR forged="yes"\x1b[2J\r"}{'
SECONDS = 20.0
"""Generous: only what grows without measure takes longer."""


def codes(text: str) -> set[str]:
    return {diagnostic.code for diagnostic in load([Source("bad.policy", text)]).diagnostics}


def odd_pod(stage: Stage, *, value: str) -> PodInfo:
    """A pod with a text that an API server would not even take as a label, in every place there is for one."""
    body: dict[str, Any] = {
        "metadata": {
            "name": "odd",
            "namespace": "shop",
            "uid": "odd",
            "labels": {"app": value, value: "x"},
            "annotations": {"note": value},
        },
        "spec": {
            "schedulerName": "policy-scheduler",
            "nodeSelector": {"zone": value},
            "containers": [{"name": value, "image": value, "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    return stage.cluster.templates.pod(msgspec.convert(body, objects.Pod))


def test_each_claim_has_its_test_and_each_test_its_claim() -> None:
    claimed = set(re.findall(r"`(test_\w+)`", TEXT))
    here = {name for name in globals() if name.startswith("test_")}
    assert here - claimed == {"test_each_claim_has_its_test_and_each_test_its_claim"}
    assert claimed <= here


@pytest.mark.parametrize(
    "text",
    [
        'filter open("/etc/passwd")',
        "filter __import__",
        "filter node.__class__",
        "filter pod.__init__.__globals__",
        'score exec("1")',
        'metric m = promql("up", url="http://elsewhere")',
        'use "/etc/passwd"',
        'use "http://elsewhere/x.policy"',
        "score (lambda x: x)(1)",
        "score [x for x in node]",
    ],
)
def test_a_policy_names_nothing_but_builtins(text: str) -> None:
    assert any(code.startswith("P0") for code in codes(text))
    assert not {"open", "exec", "eval", "getattr", "fetch", "env", "read"} & {*environment().builtins}


@pytest.mark.parametrize("text", ["filter true", 'filter true\nscore 1000000 if node.name == "n0"', "score -1"])
def test_a_policy_cannot_allow_what_kubernetes_forbids(text: str) -> None:
    stage = Stage(policies(text), nodes=2, cpus=4)
    assert stage.decide(stage.pod(cpu="64")).host is None, "more than any node has"
    elsewhere = odd_pod(stage, value="z9")
    assert stage.decide(elsewhere).host is None, "its nodeSelector fits no node"
    for _ in range(8):
        assert stage.decide(stage.pod(cpu="1")).host is not None
    assert stage.decide(stage.pod(cpu="1")).host is None, "both nodes are full"


BOMBS = {
    "names on names": "\n".join(
        ["let a0 = node.free.cpu", *(f"let a{n + 1} = a{n} * a{n}" for n in range(60)), "score a60"]
    ),
    "calls of calls": "\n".join(
        ["def f0(x) = x + x", *(f"def f{n + 1}(x) = f{n}(f{n}(x))" for n in range(30)), "score f30(1)"]
    ),
    "brackets": "score " + "(" * 100_000,
    "nots": "filter " + "not " * 30_000 + "node.ready",
    "statements": "score 1\n" * 100_000,
    "one line": "filter " + " and ".join(["node.ready"] * 20_000),
    "pattern": f'filter node.name matches "{"(a{1,1000}){1,1000}"}"',
    "long pattern": f'filter node.name matches "{"a?" * 5000}"',
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_soon(name: str) -> None:
    began = time.process_time()
    assert load([Source("bomb.policy", BOMBS[name])]).policy_set is None
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("text", ["(a+)+$", "(a|a)*b", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_takes_exponential_time(text: str) -> None:
    began = time.process_time()
    assert pattern(text).search("a" * 100_000 + "!") is None or text == "(a+)+$"
    assert time.process_time() - began < SECONDS


@pytest.mark.long
async def test_a_broken_set_leaves_the_last_good_one() -> None:
    used: list[LivePolicies] = []
    ends: asyncio.Queue[ReloadResult] = asyncio.Queue()
    worker = WorkerProcess(MODULE)
    checker = PolicyChecker(worker)
    reloader = PolicyReloader(
        compile_policies=PolicyCompiler(frozenset({"policy-scheduler"}), checker=checker),
        activate=lambda live, _: used.append(live),
        report=lambda record: ends.put_nowait(record.result),
        clock=time.time,
    )
    good = {"good.policy": "policy good\nfilter node.ready\n"}
    async with reloader:
        reloader.offer(PolicySources.of(good))
        assert await ends.get() is ReloadResult.ACCEPTED
        for name, bomb in BOMBS.items():
            if name in ("names on names", "one line", "pattern"):
                reloader.offer(PolicySources.of({**good, "bomb.policy": bomb}))
                assert await ends.get() is ReloadResult.REFUSED
        assert reloader.active is used[-1] is used[0]
    worker.kill()


def test_labels_of_pods_never_become_labels_of_metrics() -> None:
    stage = Stage(policies("policy web\nfor pods where pod.label.app\nfilter node.name != pod.label.app"), nodes=2)
    metrics, counts = SchedulerMetrics(version=lambda: "1"), ClauseCounts()
    metrics.registry.register(ClauseMetrics(counts, policies=lambda: stage.policy_set))
    for number in range(50):
        stage.decide(stage.pod(f"name-{number}", cpu="1m", app=f"value-{number}", **{f"key-{number}": "x"}), metrics)
    labels = {
        value for family in metrics.registry.collect() for sample in family.samples for value in sample.labels.values()
    }
    assert "web" in labels
    assert not [value for value in labels if re.search(r"(name|value|key)-\d|shop|n\d$", value)]


def test_nothing_on_a_pod_is_taken_for_html() -> None:
    html = rendered(Scene(pending=9).snapshot()).body.decode()
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
def test_nothing_on_a_pod_begins_a_line_of_the_log(formatter: logging.Formatter) -> None:
    record = logging.makeLogRecord({"msg": "unable to use %s", "args": (HARM,), "levelname": "INFO", "pod": HARM})
    line = formatter.format(record)
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    if isinstance(formatter, JsonLines):
        assert "forged" not in json.loads(line)


def test_a_giant_annotation_takes_time_in_proportion() -> None:
    text = 'filter not (pod.annotation.note matches "(x+x+)+y")\nscore 1 if pod.annotation.note == "z"'
    stage = Stage(policies(text), nodes=2)
    began = time.process_time()
    assert stage.decide(odd_pod_free(stage, "x" * (256 << 10))).host is not None
    assert time.process_time() - began < SECONDS


def odd_pod_free(stage: Stage, note: str) -> PodInfo:
    body = {
        "metadata": {"name": "giant", "namespace": "shop", "uid": "giant", "annotations": {"note": note}},
        "spec": {"schedulerName": "policy-scheduler", "containers": [{"name": "main"}]},
    }
    return stage.cluster.templates.pod(msgspec.convert(body, objects.Pod))


@pytest.mark.parametrize("value", ["", HARM, "\ud7ff\U0010ffff", "nan", "-1e999", "x" * 70_000, "${jndi:ldap://x}"])
def test_odd_values_on_a_pod_do_not_stop_a_decision(value: str) -> None:
    stage = Stage(policies("filter node.label.zone != pod.label.app\nspread by pod.label.app\nscore 1 if label pod=x"))
    stage.decide(odd_pod(stage, value=value))
    assert stage.decide(stage.pod(app="web")).host is not None


@pytest.mark.long
def test_no_secret_is_shown(tmp_path: Path) -> None:
    head = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
    settings = parse_settings(Source("c.yaml", f"{head}prometheus: {{url: 'https://ann:hunter2@p:9090/x'}}\n"))
    assert "hunter2" not in json.dumps(shown_settings(settings), default=str)
    assert settings.prometheus is not None
    assert "hunter2" in settings.prometheus.url, "it is used, and only not shown"
    file = tmp_path / "config.yaml"
    file.write_text(f"{head}prometheus: {{url: 'https://ann:hunter2@127.0.0.1:9/x'}}\n")
    assert "hunter2" not in CliRunner().invoke(main, ["config", str(file)]).output
    policy = tmp_path / "p.policy"
    policy.write_text('metric m = promql("up")\nscore m ?? 1\n')
    kubeconfig = tmp_path / "kubeconfig"
    user = {"name": "u", "user": {"token": "s3cr3t-token"}}
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    kubeconfig.write_text(
        json.dumps({"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"})
    )
    process = SchedulerProcess(
        tmp_path / "process",
        arguments=(f"--config={file}", f"--kubeconfig={kubeconfig}", f"--policies={policy}", "--log-level=debug"),
    )
    try:
        process.start_serving()
        eventually(lambda: "127.0.0.1:9" in process.log() and process.get("/policies")[0] == 200)
        for path in ("/", "/status", "/configz", "/metrics", "/debug/state", "/policies"):
            assert re.findall("hunter2|s3cr3t", process.get(path)[1]) == []
        process.kill()
        assert re.findall("hunter2|s3cr3t", process.log()) == []
    finally:
        process.kill()


def test_pods_of_one_namespace_hide_nothing_of_another() -> None:
    stage = Stage(policies(BY_LABEL), nodes=1)
    queue = SchedulingQueue()
    for run in (True, False):
        for number in range(1500):
            add(stage, queue, namespace="evil", team=f"evil-{number}-{run}", run=run)
        add(stage, queue, namespace="good", team=f"zz-good-{run}", run=run)
    assert stage.policy_set.queues is not None
    stage.cluster.track_usage(stage.policy_set.queues.tree)
    census = PendingCensus(queue, stage.cluster)
    for _ in census.steps():
        pass
    registry = CollectorRegistry()
    live = LiveState(queues=census.queues.states, queue_pending=census.queues.pending)
    registry.register(LiveMetrics(lambda: live))
    shown = {
        (name, dict(labels).get("queue")): value
        for (name, labels), value in unique_series(generate_latest(registry).decode()).items()
    }
    assert ("policy_scheduler_queue_used", "fixed") in shown
    assert shown["policy_scheduler_queue_used", "team/zz-good-True"] == 0.001
    assert shown["policy_scheduler_queue_pending_pods", "team/zz-good-False"] == 1
    for name, in_all in (("policy_scheduler_queue_used", 1.501), ("policy_scheduler_queue_pending_pods", 1501)):
        values = [value for (each, _), value in shown.items() if each == name]
        assert len(values) <= 1 + 1000 + 1
        assert sum(values) == pytest.approx(in_all), "what is left out is in (others)"


BY_LABEL = """\
queue fixed for pods where pod.label.team == "fixed" max cpu 5
queue team by pod.label.team max cpu 5
filter fits(cpu)
"""


def add(stage: Stage, queue: SchedulingQueue, *, namespace: str, team: str, run: bool) -> None:
    pod = msgspec.structs.replace(stage.pod(cpu="1m", team=team), namespace=namespace)
    if run:
        stage.cluster.place(pod, "n0")
    else:
        queue.add(pod, NOW)
