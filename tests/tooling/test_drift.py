"""`policyctl drift`: pods that are where they would not be put any more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state
from kube_policy_scheduler.tooling.drift import (
    ENDING,
    FINISHED,
    NO_NODE,
    OF_NODE,
    UNGOVERNED,
    Drift,
    DriftOptions,
    drift,
    headline,
    sentence,
)
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object
from kube_policy_scheduler.tooling.tester.metrics import Metrics
from tests.tooling.worlds import POOL, SCHEDULER, SSD_AND_HDD, ruleset, things_of, things_with_devices


def drifted(there: ClusterState, policy: str, *, margin: float = 10.0, **metrics: Any) -> Drift:
    made = ruleset("a", policy)
    assert made.policy_set is not None
    signals = Metrics().over(metrics).signals(made.policy_set.queries, now=0.0)
    return drift(there, DriftOptions(made, margin, 0.0, signals))


def test_a_pod_whose_node_would_refuse_it() -> None:
    there = cluster_state(things_of(SSD_AND_HDD, [{"cpu": 1, "node": "b"}, {"cpu": 1, "node": "a"}]))
    (one,) = drifted(there, "filter not label disk=hdd").drifted
    assert (one.pod, one.node, one.better, one.rejected, one.place) == ("default/p0", "b", "a", True, "a.policy:1:1")


def test_a_metric_that_went_up_is_drift() -> None:
    there = cluster_state(things_of(SSD_AND_HDD, [{"cpu": 1, "node": "a"}]))
    policy = 'filter (promql("cpu_usage") ?? 0) < 80 as cool\nscore 1'
    assert drifted(there, policy, cpu_usage={"a": 79}).drifted == ()
    (one,) = drifted(there, policy, cpu_usage={"a": 81}).drifted
    assert (one.better, one.clause) == ("b", 'filter promql("cpu_usage") ?? 0 < 80 as cool')


@pytest.mark.parametrize(("margin", "count", "slightly"), [(0, 1, 0), (29.9, 1, 0), (30, 0, 1), (31, 0, 1)])
def test_another_node_must_be_better_by_more_than_the_margin(margin: float, count: int, slightly: int) -> None:
    there = cluster_state(things_of(SSD_AND_HDD, [{"cpu": 1, "node": "b"}]))
    found = drifted(there, "score 40 if label disk=ssd\nscore 10 if label disk=hdd", margin=margin)
    assert (len(found.better), found.could_be_better) == (count, slightly)
    for one in found.better:
        assert (one.better, one.margin, one.place) == ("a", 30, "a.policy:1:1")
        assert [(lead.place, lead.points) for lead in one.leads] == [("a.policy:1:1", 40), ("a.policy:2:1", -10)]


def test_a_lead_that_comes_from_rounding_is_none() -> None:
    assert 0.1 + 0.2 > 0.3
    there = cluster_state(things_of(SSD_AND_HDD, [{"cpu": 1, "node": "b"}]))
    alike = "score 0.1 if label disk=ssd\nscore 0.2 if label disk=ssd\nscore 0.3 if label disk=hdd"
    found = drifted(there, alike, margin=0)
    assert (found.drifted, found.could_be_better) == ((), 0)


def test_a_pod_does_not_conflict_with_itself() -> None:
    there = cluster_state(things_of(SSD_AND_HDD, [{"cpu": 4, "node": "a"}]))
    assert drifted(there, "filter fits(cpu, mem)\nscore 50 if label disk=ssd").drifted == ()


def test_pods_of_one_template_are_each_reported() -> None:
    there = cluster_state(
        things_of(SSD_AND_HDD, [{"cpu": 1, "node": "b"}, {"cpu": 1, "node": "b"}, {"cpu": 1, "node": "a"}])
    )
    found = drifted(there, "score 40 if label disk=ssd")
    assert [one.pod for one in found.drifted] == ["default/p0", "default/p1"]


def test_skipped_pods_and_the_reason() -> None:
    things = things_of(
        SSD_AND_HDD,
        [
            {"cpu": 1, "node": "b"},
            {"cpu": 1, "node": "b"},
            {"cpu": 1, "node": "b"},
            {"cpu": 1, "node": "gone"},
            {"cpu": 1, "node": "b", "scheduler": "default-scheduler"},
            {"cpu": 1, "node": "b"},
            {"cpu": 1},
        ],
    )
    pods = things[2:]
    pods[0].status.phase = "Succeeded"
    pods[1].metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    pods[2].metadata.owner_references = [objects.OwnerReference(kind="DaemonSet", name="d", controller=True)]
    found = drifted(cluster_state(things), "filter not label disk=hdd")
    assert found.skipped == {FINISHED: 1, ENDING: 1, OF_NODE: 1, NO_NODE: 1, UNGOVERNED: 1}
    assert [one.pod for one in found.drifted] == ["default/p5"]
    assert found.checked == 1


def test_the_cluster_is_as_before() -> None:
    there = cluster_state(things_of(SSD_AND_HDD, [{"cpu": 1, "node": "b"}, {"cpu": 2, "node": "a"}]))

    def state() -> Any:
        nodes = there.cluster.nodes
        return nodes.requested("cpu").tolist(), {uid: there.cluster.node_of(uid) for uid in there.cluster.pods}

    before = state()
    assert drifted(there, "filter not label disk=hdd").drifted
    assert state() == before


# --- the command -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    items = [node_object(node) for node in SSD_AND_HDD]
    for at in range(4):
        form = {"name": f"p{at}", "cpu": 1, "node": "ab"[at % 2], "labels": {"app": f"a{at}"}, "namespace": f"ns{at}"}
        pod = pod_object(form, name=f"p{at}", uid=f"uid-{at}")
        pod["spec"]["schedulerName"] = SCHEDULER
        items.append(pod)
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    (tmp_path / "a.policy").write_text("filter not label disk=hdd\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "pods"),
    [
        ([], 1, ["ns1/p1", "ns3/p3"]),
        (["-n", "ns1"], 1, ["ns1/p1"]),
        (["-n", "ns0", "-n", "ns2"], 0, []),
        (["-l", "app=a3"], 1, ["ns3/p3"]),
        (["-l", "app!=a3, app"], 1, ["ns1/p1"]),
        (["-l", "app in (a0, a1),!gone"], 1, ["ns1/p1"]),
        (["-l", "app notin (a1,a3)"], 0, []),
        (["-l", "app=web"], 2, None),
        (["-l", "app=="], 2, None),
        (["-l", "app=a=b"], 2, None),
        (["-n", "nowhere"], 2, None),
        (["--margin", "-1"], 2, None),
    ],
)
def test_pods_are_chosen_by_namespace_and_selector(
    folder: Path, arguments: list[str], code: int, pods: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--cluster", "c.json", "--policies", "a.policy", "--format=json"]
    assert run(["drift", *given, *arguments]) == code
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    if pods is not None:
        assert [one["pod"] for one in json.loads(shown.out)["pods"]] == pods


def test_without_policies_kubernetes_decides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drift", "--cluster", "c.json", "--margin", "1000"]) == 0
    assert "4 pods on nodes checked: no pod has drifted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("held", "policy", "instead"),
    [
        ({"p0": "b"}, 'score 1\ndevices by device_value("memory")', ["a instead of b"]),
        ({"p0": "a"}, 'score 1\ndevices by device_value("memory")', []),
        ({"p0": "b", "p1": "a"}, 'score 1\ndevices by device_value("memory")', []),
        ({"p0": "b", "p1": "c"}, 'score 1\ndevices by device_value("memory")', ["a instead of b", "a instead of c"]),
        ({"p0": "b"}, 'score 1\ndevices by device_text("model")', []),
        ({"p0": "b"}, "score 1", []),
    ],
    ids=["better", "best", "taken", "two", "as good", "no order"],
)
def test_a_pod_that_would_get_better_devices_on_its_node(held: dict[str, str], policy: str, instead: list[str]) -> None:
    found = drifted(cluster_state(things_with_devices(POOL, held=held)), policy)
    assert [one.devices for one in found.with_other_devices] == instead
    assert found.better == found.rejected == []
    if len(instead) == 1:
        assert headline(found) == "1 pod on nodes checked: 1 would get better devices on its node"
        told = 'it would get a instead of b on its node, by `devices by device_value("memory")`'
        assert sentence(found.drifted[0]) == told


def test_pods_over_the_maximum_of_their_queue_have_drifted_and_the_others_have_not() -> None:
    policy = 'queue a for pods where pod.label.q == "a" max cpu 2\nfilter fits(cpu)\n'
    pods = [{"cpu": 1, "node": "a", "labels": {"q": "a"}, "priority": number} for number in range(4)]
    other = {"cpu": 1, "node": "b", "labels": {"q": "b"}}
    found = drifted(cluster_state(things_of(SSD_AND_HDD, [*pods, other])), policy, margin=100.0)

    assert [one.pod for one in found.drifted] == ["default/p0", "default/p1"], "those of the lowest priority"
    for one in found.drifted:
        assert (one.clause, one.place, one.rejected) == ("queue a max cpu 2", "a.policy:1:1", True)
        assert sentence(one) == "`queue a max cpu 2` rejects it there (a.policy:1:1); no node fits now"


def test_a_queue_that_is_full_is_no_drift() -> None:
    policy = 'queue a for pods where pod.label.q == "a" max cpu 2\nfilter fits(cpu)\n'
    pods = [{"cpu": 1, "node": "a", "labels": {"q": "a"}} for _ in range(2)]
    assert drifted(cluster_state(things_of(SSD_AND_HDD, pods)), policy, margin=100.0).drifted == ()
