"""What an author or a cluster has more of is grown by powers of two: an answer's work is linear in it."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable

import pytest

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.playground.session import Files, OpenedCluster, Origin, PodChoice, Session
from kube_policy_scheduler.playground.sharing import FORMAT, Share, link_of, read_link
from kube_policy_scheduler.tooling.cluster_state import stored_objects
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object
from tests.growth.stage import Lines, Meter
from tests.growth.test_growth import LINEAR

SIZES = (32, 64, 128)
SLACK_LINES = 3_000
"""The first look at words of the language, tables that double."""
ALL = "filter node.ready and fits(cpu, mem)\nscore least_allocated()\n"
POD = PodChoice(key="default/waits-0")


def cluster(*, nodes: int = 12, pods: int = 12, waiting: int = 1, labels: int = 1, length: int = 5) -> OpenedCluster:
    wide = {f"label-{number}": "x" * min(length, 60) for number in range(labels)}
    items = [
        node_object({"name": f"n{at}", "zone": "abc"[at % 3], "cpu": 8, "mem": "32Gi", "labels": wide})
        for at in range(nodes)
    ]
    for at in range(pods):
        items.append(pod_object({"node": f"n{at % nodes}", "cpu": "10m", "mem": "1Mi"}, name=f"p{at}", uid=""))
    for at in range(waiting):
        items.append(pod_object({"cpu": 1, "mem": "1Gi", "labels": {"app": "web"}}, name=f"waits-{at}", uid=""))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    things = stored_objects(parse_objects(Source("cluster", text)), scheduler="policy-scheduler")
    return OpenedCluster("cluster", Origin.SNAPSHOT, things, 0.0)


def lines(n: int) -> Files:
    return {"a.policy": ALL + "".join(f'score {at} if node.label.l{at} == "x"\n' for at in range(n))}


def files(n: int) -> Files:
    return {f"p{at}.policy": f'policy p{at}\nfor pods where pod.label.app == "a{at}"\n{ALL}' for at in range(n)}


def used(n: int) -> Files:
    uses = "".join(f'use "p{at}.policy"\n' for at in range(n))
    return {"a.policy": uses + ALL} | {f"p{at}.policy": f"let w{at} = {at}\nscore w{at}\n" for at in range(n)}


def metrics(n: int) -> Files:
    read = "".join(f'metric m{at} = promql("load{at}") default 0\nscore m{at}\n' for at in range(n))
    return {"a.policy": ALL + read}


AXES: dict[str, tuple[Callable[[int], Files], Callable[[int], OpenedCluster]]] = {
    "lines": (lines, lambda n: cluster()),
    "files": (lambda n: files(n // 2), lambda n: cluster()),
    "used files": (lambda n: used(n // 2), lambda n: cluster()),
    "metrics": (metrics, lambda n: cluster()),
    "broken lines": (lambda n: {"a.policy": "filtr node.ready\n" * n}, lambda n: cluster()),
    "names": (lambda n: {"a.policy": f"let {'x' * n} = 1\nscore {'x' * n}\n"}, lambda n: cluster()),
    "nodes": (lambda n: {"a.policy": ALL}, lambda n: cluster(nodes=n)),
    "pods": (lambda n: {"a.policy": ALL}, lambda n: cluster(pods=n)),
    "pods that wait": (lambda n: {"a.policy": ALL}, lambda n: cluster(waiting=n)),
    "labels": (lambda n: {"a.policy": ALL}, lambda n: cluster(labels=n)),
    "long labels": (lambda n: {"a.policy": ALL}, lambda n: cluster(length=n)),
}


def taken(axis: str, n: int) -> dict[str, float]:
    texts, of = AXES[axis]
    made, meter = of(n), Lines()
    gc.disable()
    try:
        return measured(texts(n), made, meter)
    finally:
        gc.enable()


def measured(texts: Files, made: OpenedCluster, meter: Meter) -> dict[str, float]:
    found: list[Session] = []
    meter.step("open", lambda: found.append(Session(texts, made)))
    asked = found[0]
    meter.step("evaluate", lambda: asked.evaluate(texts, POD))
    edit = {name: f"# an edit\n{text}" for name, text in texts.items()}
    meter.step("edit", lambda: asked.evaluate(edit, POD))
    asked.evaluate(texts, POD)
    meter.step("lint", lambda: asked.lint(texts))
    meter.step("why", lambda: asked.why(texts, POD))
    meter.step("state", asked.state)
    meter.step("share", lambda: asked.recorded(texts))
    link = link_of(Share(FORMAT, texts, POD), "http://127.0.0.1:1")
    if link is not None:
        meter.step("link", lambda: read_link(link))
    meter.step("test", lambda: asked.pod_text("default/waits-0"))
    return meter.taken


@pytest.mark.long
@pytest.mark.parametrize("axis", AXES)
def test_the_work_of_an_answer_is_linear(axis: str) -> None:
    taken(axis, SIZES[0])  # what is made once per process
    first, second, third = (taken(axis, size) for size in SIZES)
    assert {
        step: [first[step], second[step], most]
        for step, most in third.items()
        if most - second[step] > LINEAR * max(0.0, second[step] - first[step]) + SLACK_LINES
    } == {}
