"""The same extender, called by the real kube-scheduler and by us: the same requests, the same placements."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.tooling.importing.settings import import_settings
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.fakes.extender_server import ExtenderServer, in_thread, names_of
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.kube_scheduler import kube_scheduler
from tests.integration.objects import node, pod

PODS, NODES = 10, 6


def number(*texts: str) -> int:
    """A number from texts, as an extender with an opinion of its own has one."""
    return hashlib.sha256("/".join(texts).encode()).digest()[0]


def picky(asked: Any) -> Any:
    """Reject about a third of the nodes for each pod."""
    name = asked["Pod"]["metadata"]["name"]
    passed = [each for each in names_of(asked) if number(name, each) % 3]
    failed = {each: "no device left" for each in names_of(asked) if each not in passed}
    if asked["NodeNames"] is None:
        items = [each for each in asked["Nodes"]["items"] if each["metadata"]["name"] in passed]
        return {"Nodes": {"metadata": {}, "items": items}, "FailedNodes": failed, "Error": ""}
    return {"NodeNames": passed, "FailedNodes": failed, "Error": ""}


def opinions(asked: Any) -> Any:
    """Give each node another score, so that no tie has to be broken."""
    name = asked["Pod"]["metadata"]["name"]
    ranked = sorted(names_of(asked), key=lambda each: number(each, name))
    return [{"Host": each, "Score": score} for score, each in enumerate(ranked)]


def placements(cluster: Cluster, name: str) -> dict[str, str]:
    """Create pods one after the other; return where they are, "" for those that stay pending."""
    placed = {}
    for at in range(PODS):
        key = f"p{at}"
        cluster.add_pods(pod(key, scheduler=name, cpu="1500m"))

        def is_decided(key: str = key) -> bool:
            return bool(cluster.placements()[key]) or cluster.condition(key).get("status") == "False"

        eventually(is_decided)
        placed[key] = cluster.placements()[key]
    return placed


@pytest.mark.parametrize("cache", [True, False], ids=["names", "whole nodes"])
def test_pods_go_where_kube_scheduler_places_them_with_the_same_extender(
    cache: bool, cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1000, "httpTimeout": "5s"}
    cluster.add_nodes(*(node(f"n{at}", cpu="4") for at in range(NODES)))
    with in_thread(ExtenderServer(filter=picky, prioritize=opinions)) as extender:
        told = {"urlPrefix": extender.url, "nodeCacheCapable": cache, **verbs}
        kubeconfig = cluster.kubeconfig(tmp_path / "kube-scheduler.kubeconfig")
        with kube_scheduler(kubeconfig, log=tmp_path / "kube-scheduler.log", extender=told):
            theirs = placements(cluster, "default-scheduler")
        their_requests = [(verb, summary(asked)) for verb, asked in extender.asked]
        for key in theirs:
            cluster.delete_pod(key)
        eventually(lambda: not cluster.placements())
        extender.asked.clear()

        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "extenders": [told],
        }  # fmt: skip
        written = import_settings(parse_document(Source("theirs.yaml", yaml.safe_dump(configuration))))
        (tmp_path / "config.yaml").write_text(written.text)
        policies.update({"default.policy": "use kubernetes scores\n"})
        process = scheduler(f"--config={tmp_path / 'config.yaml'}").start_ready()
        ours = placements(cluster, "policy-scheduler")
        our_requests = [(verb, summary(asked)) for verb, asked in extender.asked]
    assert ours == theirs, process.log()
    assert len(set(ours.values())) > 2, "the extender spreads them"
    assert set(our_requests) == set(their_requests)
    assert cluster.overcommitted() == []
    counted = [
        value
        for name, value in process.metrics().items()
        if name.startswith("policy_scheduler_asked_extender_duration_seconds_count") and 'result="ok"' in name
    ]
    assert sum(counted) == len(our_requests)


def summary(asked: Any) -> tuple[str, tuple[str, ...], bool]:
    return asked["Pod"]["metadata"]["name"], tuple(sorted(names_of(asked))), asked["NodeNames"] is None


def test_an_extender_that_is_down_is_said_to_be_so_and_pods_come_once_it_is_up(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    with in_thread(ExtenderServer()) as extender:
        url = extender.url
    (tmp_path / "config.yaml").write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
        f"extenders: [{{urlPrefix: '{url}', filterVerb: filter, nodeCacheCapable: true}}]\n"
    )
    cluster.add_nodes(node("n1"))
    process = scheduler(f"--config={tmp_path / 'config.yaml'}").start_ready()
    cluster.add_pods(pod("waits"))
    eventually(lambda: any("connection refused" in str(event) for event in cluster.events("waits")))
    assert "connection refused" in process.get("/")[1]
