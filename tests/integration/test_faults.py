"""Whatever goes wrong between scheduler and API server: no pod is lost, none is bound twice, no node is overfull."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import (
    CutStream,
    Drop,
    Exchange,
    ExpireStream,
    Fault,
    Front,
    Hold,
    InjectLines,
    LoseAnswer,
    Plan,
    Reply,
)
from tests.integration.objects import OURS, Json, node, pod

PODS = 24
UNSETTLED = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


def for_each_pod_once(fault: Fault, verb: str, resource: str) -> Plan:
    """Strike the first request of a kind about every pod."""
    struck: set[str] = set()

    def plan(exchange: Exchange) -> Fault | None:
        if not exchange.is_about(verb, resource) or exchange.name in struck:
            return None
        struck.add(exchange.name)
        return fault

    return plan


def first(number: int, fault: Fault, verb: str, resource: str) -> Plan:
    """Strike the first requests of a kind."""
    left = [number]

    def plan(exchange: Exchange) -> Fault | None:
        if not exchange.is_about(verb, resource) or not left[0]:
            return None
        left[0] -= 1
        return fault

    return plan


def bindings(front: Front) -> Counter[str]:
    """Return how often each pod was bound, by what the API server answered."""
    return Counter(exchange.name for exchange in front.asked("create", "pods/binding", code=201))


def settled(cluster: Cluster, front: Front, names: list[str]) -> None:
    """Check that all pods are bound, once each, and that nothing is overfull."""
    cluster.wait_bound(*names, within=20.0)
    eventually(lambda: bindings(front).keys() >= set(names))
    assert set(bindings(front).values()) == {1}
    assert cluster.overcommitted() == []
    assert cluster.refused_by_kubelets() == []


BINDING_FAULTS: dict[str, Fault] = {
    "the API server asks for patience": Reply(429, UNSETTLED[429], retry_after_seconds=1),
    "the API server breaks": Reply(500, UNSETTLED[500]),
    "the API server is not available": Reply(503, UNSETTLED[503]),
    "the API server was too slow": Reply(504, UNSETTLED[504]),
    "an unexplained conflict": Reply(409, "Conflict"),
    "the connection breaks before the request arrives": Drop(),
    "the answer is lost": LoseAnswer(),
}


@pytest.mark.parametrize("fault", BINDING_FAULTS)
def test_bindings_survive(
    fault: str, cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(*(node(f"n{i}", cpu="1") for i in range(8)))
    front.plan = for_each_pod_once(BINDING_FAULTS[fault], "create", "pods/binding")
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    names = [f"p{i}" for i in range(PODS)]
    cluster.add_pods(*(pod(name, cpu="300m") for name in names))
    settled(cluster, front, names)
    for name in names:
        eventually(lambda name=name: cluster.events(name, reason="Scheduled"))  # type: ignore[misc]


def test_a_pod_that_another_scheduler_binds_at_the_same_moment_stays_there(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n1", cpu="1"), node("n2", cpu="1", labels={"for": "ours"}))

    def theirs_first(exchange: Exchange) -> Fault | None:
        is_theirs = exchange.is_about("create", "pods/binding") and exchange.name == "contested"
        if is_theirs and not cluster.placements()["contested"]:
            cluster.bind("contested", "n1")
        return None

    front.plan = theirs_first
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(pod("contested", cpu="900m", nodeSelector=None))
    cluster.wait_bound("contested")
    cluster.add_pods(pod("next", cpu="900m"))
    assert cluster.wait_bound("contested", "next") == {"contested": "n1", "next": "n2"}
    assert cluster.overcommitted() == []


def test_a_pod_made_anew_under_its_name_is_never_bound_by_the_old_ones_decision(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("left", labels={"side": "left"}), node("right", labels={"side": "right"}))

    def replaced_meanwhile(exchange: Exchange) -> Fault | None:
        if exchange.is_about("create", "pods/binding") and not done:
            done.append(True)
            cluster.delete_pod("twice")
            cluster.add_pods(pod("twice", nodeSelector={"side": "right"}))
        return None

    done: list[bool] = []
    front.plan = replaced_meanwhile
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(pod("twice", nodeSelector={"side": "left"}))
    eventually(lambda: done)
    eventually(lambda: cluster.placements()["twice"] == "right")


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
    settled(cluster, front, names)
    assert len(front.asked("watch", "pods")) >= 3
    assert len(front.asked("watch", "nodes")) >= 3


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
    settled(cluster, front, names)
    assert process.is_alive
    assert "Traceback" not in process.log()


def test_bindings_that_hang_hold_up_no_other_pod(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    release = Hold()

    def plan(exchange: Exchange) -> Fault | None:
        return release if exchange.is_about("create", "pods/binding") and exchange.name.startswith("slow") else None

    front.plan = plan
    cluster.add_nodes(node("n0", cpu="2"))
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    slow, quick = [f"slow{i}" for i in range(10)], [f"quick{i}" for i in range(10)]
    cluster.add_pods(*(pod(name) for name in slow))
    eventually(lambda: len(front.asked("create", "pods/binding")) == len(slow))
    cluster.add_pods(*(pod(name) for name in quick), pod("too-much", cpu="100m"))
    cluster.wait_bound(*quick)
    assert all(not at for name, at in cluster.placements().items() if name in slow)
    # what is being bound counts: twenty pods of 100m fill the node, and there is no room for one more
    eventually(lambda: "1 Insufficient cpu" in cluster.condition("too-much").get("message", ""))
    release.until.set()
    settled(cluster, front, [*slow, *quick])


def test_a_scheduler_that_is_killed_again_and_again_leaves_no_pod_behind(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(*(node(f"n{i}", cpu="1") for i in range(12)))
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    names = [f"p{i}" for i in range(36)]
    for i, name in enumerate(names):
        cluster.add_pods(pod(name, cpu="300m"))
        if i in (11, 23):
            process.kill()
            process.start()
    cluster.wait_bound(*names)
    assert max(bindings(front).values()) == 1  # some answers were never read: nobody is left who could
    assert cluster.overcommitted() == []
    assert cluster.refused_by_kubelets() == []


def test_what_happened_while_the_api_server_was_away_is_caught_up_with(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n0", cpu="1"), node("n1", cpu="1"), node("gone", cpu="4"))
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(pod("before", cpu="900m", nodeSelector={"kubernetes.io/hostname": "n0"}))
    cluster.wait_bound("before")
    front.down()
    cluster.delete_pod("before")
    cluster.api.delete("nodes", "gone")
    cluster.add_pods(pod("theirs", cpu="900m", scheduler="another"))
    cluster.bind("theirs", "n1")
    cluster.add_pods(pod("ours", cpu="900m"), pod("waits", cpu="900m"))
    eventually(lambda: "trying again with growing pauses" in process.log())
    front.up()
    eventually(lambda: sorted(cluster.placements()[name] for name in ("ours", "waits")) == ["", "n0"])
    assert cluster.overcommitted() == []
    outages = [entry for entry in process.log_entries() if "growing pauses" in entry["message"]]
    assert len(outages) == 1, "one line for one outage"
    assert "Traceback" not in process.log()


def test_an_api_server_that_comes_later_than_the_scheduler_is_waited_for(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("waits"))
    config = front.kubeconfig(tmp_path / "front")
    front.down()
    process = scheduler(kubeconfig=config).start_serving()
    eventually(lambda: "trying again with growing pauses" in process.log())
    code, text = process.get("/readyz")
    assert code == 500
    assert "the first lists are not complete" in text
    assert process.get("/livez")[0] == 200, "a restart would not help"
    front.up()
    cluster.wait_bound("waits")
    assert process.get("/readyz")[0] == 200
    assert "Traceback" not in process.log()


@pytest.mark.timeout(90)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_of_all_of_them_loses_nothing(
    seed: int, cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    """Every fifth request fails in some way, watches are cut all the time, and the API server goes away twice."""
    random = Random(seed)
    nodes, pods = 20, 150

    def storm(exchange: Exchange) -> Fault | None:
        if random.random() > 0.2:
            return None
        broken: list[Fault] = [Reply(code, reason) for code, reason in UNSETTLED.items() if code != 429]
        if exchange.verb == "watch":
            return random.choice([CutStream(after_lines=random.randrange(20)), ExpireStream(), Drop(), *broken])
        return random.choice([LoseAnswer(), Drop(), Reply(429, UNSETTLED[429], retry_after_seconds=1), *broken])

    cluster.add_nodes(*(node(f"n{i}", cpu="2", pods="10") for i in range(nodes)))
    front.plan = storm
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_serving()
    names = [f"p{i}" for i in range(pods)]
    for i, name in enumerate(names):
        cluster.add_pods(pod(name, cpu="230m"))  # eight to a node: 160 places
        if i % 10 == 0:
            front.cut_connections()
        if i in (50, 100):
            front.down()
        if i in (60, 110):
            front.up()
    deleted = random.sample(names, 20)
    for name in deleted:
        cluster.delete_pod(name)
    left = [name for name in names if name not in deleted]
    cluster.wait_bound(*left, within=40.0)
    assert cluster.overcommitted() == []
    assert cluster.refused_by_kubelets() == []
    assert max(bindings(front).values()) == 1
