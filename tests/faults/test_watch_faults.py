"""Watches that are cut, too old, refused or talk nonsense: nothing is missed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.accounts import settled
from tests.faults.plans import UNSETTLED, first
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import CutStream, ExpireStream, Fault, Front, InjectLines, Reply
from tests.integration.objects import OURS, Json, node, pod

WATCH_FAULTS: dict[str, Fault] = {
    "cut in the middle of a line": CutStream(after_lines=1),
    "told that its version is too old": ExpireStream(),
    "refused as too old": Reply(410, "Expired"),
    "refused for want of patience": Reply(429, UNSETTLED[429], retry_after_seconds=1),
    "refused by a broken server": Reply(500, UNSETTLED[500]),
}


@pytest.mark.parametrize("fault", WATCH_FAULTS)
def test_nothing_is_missed_when_a_watch_is(
    fault: str, cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n0", cpu="1"))
    of_pods, of_nodes = (first(2, WATCH_FAULTS[fault], "watch", resource) for resource in ("pods", "nodes"))
    front.plan = lambda exchange: of_pods(exchange) or of_nodes(exchange)
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    names = [f"p{i}" for i in range(9)]
    for i, name in enumerate(names):
        cluster.add_pods(pod(name, cpu="300m"))
        if i % 3 == 0:
            cluster.add_nodes(node(f"n{i + 1}", cpu="1"))
    settled(cluster, front, names, after=f"a watch {fault}")
    # lists alone may have told everything: the third watch is opened after a pause
    eventually(lambda: all(len(front.asked("watch", resource)) >= 3 for resource in ("pods", "nodes")))


def odd_pod(spec: Json) -> bytes:
    """A watch event with an object that no API server should send."""
    metadata = {"name": "odd", "namespace": "default", "uid": "odd", "resourceVersion": "1"}
    whole = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"schedulerName": OURS} | spec}
    return json.dumps({"type": "ADDED", "object": whole}).encode()


NO_EVENTS: dict[str, bytes] = {
    "no JSON": b'{"type":"ADDED","obj',
    "no event": b"[]",
    "no UTF-8": b'{"type":"ADDED","object":{"metadata":{"name":"\xff\xfe","uid":"odd"}}}',
}
ODD_EVENTS: tuple[bytes, ...] = (
    b'{"type":"ADDED"}',
    b'{"type":"RENAMED","object":{"metadata":{"name":"odd"}}}',
    b'{"type":"ADDED","object":{"metadata":{"name":5,"uid":"odd"}}}',
    b'{"type":"ADDED","object":{"spec":{}}}',
    odd_pod({"containers": [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]}),
    odd_pod({"containers": [{"name": "c", "resources": {"requests": {"cpu": "9" * 60}}}]}),
    odd_pod(
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Maybe"}]}]
                    }
                }
            },
            "containers": [{"name": "c"}],
        }
    ),
)


@pytest.mark.parametrize("lines", [*((line,) for line in NO_EVENTS.values()), ODD_EVENTS], ids=[*NO_EVENTS, "odd"])
def test_no_line_of_a_watch_ends_the_scheduler_or_loses_a_pod(
    lines: tuple[bytes, ...], cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n0"))
    of_pods, of_nodes = (first(1, InjectLines(lines), "watch", plural) for plural in ("pods", "nodes"))
    front.plan = lambda exchange: of_pods(exchange) or of_nodes(exchange)
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    names = [f"p{i}" for i in range(5)]
    cluster.add_pods(*(pod(name) for name in names))
    settled(cluster, front, names, after="lines that are no events")
    assert process.is_alive
    assert "Traceback" not in process.log()
