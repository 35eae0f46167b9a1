"""What tenants write in labels makes sets of pods; the counts of all sets together take a bounded amount of memory."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster import pod_counters
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.frame import Frame
from tests.lang.clusters import NOW, node, pod, policy

SAME = "where p.label.tenant == pod.label.tenant"
CLAUSES = {
    "counts": f"score 0 - count(p in node.pods {SAME})",
    "sums": f"score 0 - sum(p.request.cpu for p in node.pods {SAME})",
    "extremes": f"score 0 - max(p.request.cpu for p in node.pods {SAME})",
    "values": f"score 0 - count(distinct p.label.app for p in node.pods {SAME})",
    "zones": f"score 0 - sum(p.request.cpu for p in zone.pods {SAME})\nscore 0 - count(p in zone.pods {SAME})",
    "others": "score 0 - count(p in node.pods where p.label.tenant != pod.label.tenant)",
}
NODES, MOST = 128, 40_000
MOST_OF_ONE_POD = 20_000
"""Bytes that one decision may take before room is made."""


def _decided(clause: str, tenants: int, *, placed: bool = True) -> tuple[list[str | None], int]:
    """Decide two pods of each tenant; return their nodes, and the most bytes that counts took."""
    cluster, cycle, profile = Cluster(), Cycle(), policy(f"filter node.ready\n{clause}\n").profile
    for number in range(NODES):
        cluster.set_node(node(f"n{number}", zone=f"z{number % 3}"))
    hosts: list[str | None] = []
    most = 0
    for number in range(2 * tenants):
        made = _pod(cluster, number, tenants)
        host = cycle.decide(Frame(made, cluster, NOW), profile).host
        hosts.append(host)
        most = max(most, cluster.counters.bytes)
        if placed and host is not None:
            cluster.place(made, host)
    return hosts, most


def _pod(cluster: Cluster, number: int, tenants: int) -> PodInfo:
    labels = {"tenant": f"t{number % tenants}", "app": f"a{number % 5}"}
    return pod(cluster, f"p{number}", cpu=f"{1 + number % 7}m", labels=labels)


@pytest.mark.long
@pytest.mark.parametrize("kind", CLAUSES)
def test_more_tenants_take_no_more_memory_and_decisions_are_the_same(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, unlimited = _decided(CLAUSES[kind], 100)
    monkeypatch.setattr(pod_counters, "MIN_COUNTER_BYTES", MOST)
    monkeypatch.setattr(pod_counters, "COUNTER_BYTES_PER_NODE", 0)
    hosts, most = _decided(CLAUSES[kind], 100)

    assert unlimited > MOST + MOST_OF_ONE_POD
    assert most <= MOST + MOST_OF_ONE_POD
    assert hosts == plain


def test_pods_that_fit_nowhere_make_no_more_sets_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counters, "MIN_COUNTER_BYTES", MOST)
    monkeypatch.setattr(pod_counters, "COUNTER_BYTES_PER_NODE", 0)
    _, most = _decided(CLAUSES["extremes"], 100, placed=False)

    assert most <= MOST + MOST_OF_ONE_POD


def test_the_limit_follows_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counters, "MIN_COUNTER_BYTES", 3000)
    monkeypatch.setattr(pod_counters, "COUNTER_BYTES_PER_NODE", 1000)
    cluster, found = Cluster(), []
    for number in range(5):
        cluster.set_node(node(f"n{number}"))
        found.append(cluster.counters.max_bytes)

    assert found == [3000, 3000, 3000, 4000, 5000]


def test_totals_by_hostname_that_templates_keep_are_bounded_in_bytes() -> None:
    cluster, cycle, profile = Cluster(), Cycle(), policy("filter node.ready\nuse kubernetes\n").profile
    for number in range(NODES):
        cluster.set_node(node(f"n{number}"))
    cluster.kept.most = 10 * NODES * 8
    pods = [_apart(cluster, f"a{number}") for number in range(40)]
    for each in pods:
        assert cycle.decide(Frame(each, cluster, NOW), profile).host is not None

    keeping = [each.name for each in pods if ("InterPodAffinity", "required") in each.template.memo]
    assert 5 <= len(keeping) <= 10
    assert keeping == [each.name for each in pods[-len(keeping) :]]


def _apart(cluster: Cluster, app: str) -> PodInfo:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod(cluster, app, labels={"app": app}, spec={"affinity": affinity})
