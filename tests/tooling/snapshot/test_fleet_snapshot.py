"""`policyctl snapshot --fleet` of a control plane behind HTTP, with a real kubeconfig."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.documents.writing import json_list_lines
from kube_policy_scheduler.embedded import User
from kube_policy_scheduler.embedded.access import ADMIN
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.tooling.fleet_state import FleetState, fleet_state
from kube_policy_scheduler.tooling.snapshot.fleet_fields import anonymised_fleet, places_of, recorded_fleet
from kube_policy_scheduler.tooling.snapshot.pseudonyms import Pseudonyms
from tests.fakes.prometheus_server import PrometheusServer
from tests.fakes.secure_cluster import SecureCluster
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC, SUCCESS, raw_binding, raw_cluster

POLICY = """\
metric load = promql("cluster_load") by cluster
for workloads where workload.label.tier == "edge"
score -load ?? 0
score -(cluster.price ?? 9)
divide best first
"""
SECRET = "correct-horse"


@pytest.fixture(scope="module")
def control() -> Iterator[SecureCluster]:
    with SecureCluster(kubelets=None, controllers=None).in_thread() as running:
        price = {"policy-scheduler/hourly-price": "2.5", "note": SECRET}
        running.load(raw_cluster(name, annotations=price) for name in ("blade-a", "blade-b"))
        bindings = [raw_binding("web", has={"blade-a": 3}), raw_binding("other")]
        for each in bindings:
            del each["metadata"]["resourceVersion"]
        everywhere: dict[str, Any] = raw_binding("rules", placement=DUPLICATED)
        everywhere = everywhere | {"kind": "ClusterResourceBinding", "metadata": {"name": "rules"}}
        template: dict[str, Any] = {"name": "web", "namespace": "shop", "labels": {"tier": "edge"}}
        container = {"name": "main", "image": "i", "env": [{"name": "PASSWORD", "value": SECRET}]}
        pod = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        spec = {"selector": {"matchLabels": {"app": "web"}}, "template": pod}
        running.load(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
                *bindings,
                everywhere,
                {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": template, "spec": spec},
            ]
        )
        yield running


@pytest.fixture
def folder(control: SecureCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    control.kubeconfig(tmp_path / "admin")
    (tmp_path / "a.policy").write_text(POLICY)
    return tmp_path


def test_why_and_impact_read_what_it_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot", "--fleet", "--kubeconfig", "admin", "-o", "fleet.json.gz"]) == 0
    assert "2 clusters, 3 bindings, 1 template" in capsys.readouterr().err

    assert run(["why", "shop/web", "--fleet", "fleet.json.gz", "--policies", "a.policy", "--format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["policy"], found["clusters"]) == ("a", {"blade-a": 3})
    assert run(["impact", "karmada", "a.policy", "--fleet", "fleet.json.gz", "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["decided"] == 1


def test_no_secret_and_no_name_reaches_the_file(folder: Path) -> None:
    asked = ["snapshot", "--fleet", "--kubeconfig", "admin", "--policies", "a.policy", "-o", "fleet.json"]
    assert run(asked) == 0
    assert SECRET not in (folder / "fleet.json").read_text()
    assert run([*asked, "--anonymise"]) == 0
    text = (folder / "fleet.json").read_text()
    assert not [name for name in ("blade", "shop", "web", "other", SECRET) if name in text]
    assert '"tier":"edge"' in text
    assert '"policy-scheduler/hourly-price":"2.5"' in text


@pytest.mark.long
@pytest.mark.needs("prometheus")
def test_metrics_are_by_cluster(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / "prometheus"
    place.mkdir()
    prometheus = PrometheusServer(place)
    values = [({"cluster": "blade-a"}, 5.0), ({"cluster": "blade-b"}, 1.0)]
    prometheus.backfill({"cluster_load": values}, age_seconds=20)
    with prometheus:
        asked = ["snapshot", "--fleet", "--kubeconfig", "admin", "--policies", "a.policy", "-o", "fleet.json"]
        assert run([*asked, "--prometheus-url", prometheus.url]) == 0
    assert "1 metric" in capsys.readouterr().err
    given_metrics = ["--metrics", "fleet.metrics.yaml", "--policies", "a.policy"]
    assert run(["why", "web", "--fleet", "fleet.json", *given_metrics, "--format=json"]) == 0
    scores = {each["cluster"]: each["score"] for each in json.loads(capsys.readouterr().out)["verdicts"]}
    assert scores == {"blade-a": -7.5, "blade-b": -3.5}


def test_what_may_not_be_read_is_said(control: SecureCluster, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = [
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["list"]},
        {"apiGroups": ["work.karmada.io"], "resources": ["resourcebindings"], "verbs": ["list"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    version = "rbac.authorization.k8s.io/v1"
    control.load(
        [
            {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": rules},
            {
                "apiVersion": version,
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "reader"},
                "roleRef": role,
                "subjects": [{"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}],
            },
        ]
    )
    control.kubeconfig(folder / "reader", user=User("reader"))
    control.kubeconfig(folder / "nobody", user=User("nobody"))

    assert run(["snapshot", "--fleet", "--kubeconfig", "reader", "-o", "fleet.json"]) == 1
    said = capsys.readouterr().err
    assert "not in the snapshot: clusterresourcebindings.work.karmada.io: " in said
    assert "not in the snapshot: labels of templates of kind Deployment (apps/v1): " in said
    assert "2 clusters, 2 bindings, 0 templates" in said
    head = json.loads((folder / "fleet.json").read_text())["metadata"]["annotations"]
    assert "clusterresourcebindings.work.karmada.io" in head["policyctl/missing"]

    assert run(["snapshot", "--fleet", "--kubeconfig", "nobody", "-o", "fleet.json"]) == 2
    assert "cannot read the fleet: " in capsys.readouterr().err


_NOT_X = {"key": "disk", "operator": "NotIn", "values": ["x"]}
_OWN_OR_AWS = {"key": "provider", "operator": "In", "values": ["own", "aws"]}
NAMES = st.sampled_from(["a", "b", "c"])
AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "clusterNames": st.lists(NAMES, max_size=3),
        "exclude": st.lists(NAMES, max_size=2),
        "labelSelector": st.sampled_from(
            [
                {"matchLabels": {"disk": "ssd"}},
                {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["x"]}]},
            ]
        ),
        "fieldSelector": st.just(
            {"matchExpressions": [{"key": "provider", "operator": "In", "values": ["own", "aws"]}]}
        ),
    },
)
TOLERATIONS = st.sampled_from([[], [{"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]])


def _read(things: list[dict[str, Any]]) -> FleetState:
    return fleet_state(parse_objects(Source("snapshot", "".join(json_list_lines(things, annotations={})))))


@given(AFFINITY, TOLERATIONS, st.dictionaries(NAMES, st.integers(1, 4), max_size=2), st.booleans(), st.booleans())
def test_a_snapshot_decides_as_the_fleet_it_was_taken_of(
    affinity: dict[str, Any], tolerations: list[Any], has: dict[str, int], applied: bool, hide: bool
) -> None:
    placement = DYNAMIC | {"clusterAffinity": affinity, "clusterTolerations": tolerations}
    raw = [
        raw_cluster("a", provider="own", labels={"disk": "ssd"}),
        raw_cluster("b", provider="aws", labels={"disk": "x"}),
        raw_cluster("c", provider="gcp", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]),
    ]
    asked = raw_binding(
        replicas=4, placement=placement, has=has, applied=placement if applied else None, status={"conditions": SUCCESS}
    )
    before = _read([*raw, asked])

    clusters = [msgspec.convert(each, KarmadaCluster) for each in raw]
    things = recorded_fleet(clusters, [msgspec.convert(asked, ResourceBinding)], [])
    names = Pseudonyms(kept=places_of(clusters))
    after = _read(anonymised_fleet(things, names) if hide else things)

    assert after.bound[0].is_due == before.bound[0].is_due
    old, new = place(before.workloads[0], before.fleet), place(after.workloads[0], after.fleet)
    named = (lambda name: names.of(name, "cluster")) if hide else str
    assert old.reason == new.reason
    assert new.targets.keys() <= {named(name) for name in "abc"}
    assert {named(n) for n, each in old.verdicts.items() if each.rejected_by} == {
        n for n, each in new.verdicts.items() if each.rejected_by
    }
    if not hide:
        assert (new.targets, new.message) == (old.targets, old.message)


# --- nodes and pods of clusters --------------------------------------------------------------------------------

READS_MEMBERS = """\
for workloads where workload.name == "web"
filter count(n in cluster.nodes where n.annotation.rack == "r1" and n.allocatable.cpu >= 8) ?? 0 >= 2 as large
filter count(p in cluster.pods where p.label.app == "db") ?? 1 == 0 as quiet
divide evenly
"""


def node(name: str, **annotations: str) -> dict[str, Any]:
    offered = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    meta = {"name": name, "annotations": annotations | {"note": SECRET}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": offered}}


@pytest.fixture
def with_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A control plane that is a member of itself, as blade-a; of blade-b it has no credentials."""
    with SecureCluster(kubelets=None, controllers=None).in_thread() as running:
        clusters = [raw_cluster(name, cpu=20) for name in ("blade-a", "blade-b")]
        where = {"namespace": "karmada-cluster", "name": "blade-a"}
        clusters[0]["spec"] |= {"apiEndpoint": running.url, "secretRef": where}
        web = raw_binding("web")
        del web["metadata"]["resourceVersion"]
        text = {"token": running.tokens.issue(ADMIN), "caBundle": running.certificate_authority.decode()}
        data = {key: b64encode(value.encode()).decode() for key, value in text.items()}
        container = {"name": "main", "image": "i", "env": [{"name": "PASSWORD", "value": SECRET}]}
        running.load(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-cluster"}},
                *clusters,
                web,
                {"apiVersion": "v1", "kind": "Secret", "metadata": where, "data": data},
                node("n1", rack="r1"),
                node("n2", rack="r1"),
                node("n3", rack="r2"),
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "api", "namespace": "shop", "labels": {"app": "api"}},
                    "spec": {"containers": [container], "nodeName": "n1"},
                    "status": {"phase": "Running"},
                },
            ]
        )
        running.kubeconfig(tmp_path / "config")
        monkeypatch.chdir(tmp_path)
        Path("a.policy").write_text(READS_MEMBERS)
        yield tmp_path


def targets(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = run(["why", *arguments, "--policies=a.policy", "--format=json"])
    return code, json.loads(capsys.readouterr().out)


def test_nodes_and_pods_that_policies_read_are_saved_and_decide(
    with_member: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = targets(capsys, "web", "--karmada", "--kubeconfig=config")
    assert (live[0], live[1]["clusters"]) == (0, {"blade-a": 3})
    unread = {each["cluster"]: each.get("unread") for each in live[1]["verdicts"]}
    assert unread == {"blade-a": None, "blade-b": "its Cluster has no spec.apiEndpoint; expected https://HOST:PORT"}
    saving = ["snapshot", "--fleet", "--kubeconfig=config", "--policies=a.policy", "-o"]
    assert run([*saving, "f.json"]) == 1
    told = capsys.readouterr().err
    assert "not in the snapshot: nodes and pods of cluster blade-b: its Cluster has no spec.apiEndpoint" in told
    assert "4 nodes and pods of clusters" in told
    assert SECRET not in Path("f.json").read_text()
    assert targets(capsys, "web", "--fleet=f.json")[1]["clusters"] == {"blade-a": 3}
    assert run([*saving, "h.json", "--anonymise", "--allow-missing"]) == 0
    hidden = Path("h.json").read_text()
    assert not [word for word in ("blade", "shop", "n1", SECRET) if f'"{word}' in hidden]
    again = ["snapshot", "--fleet", "--cluster=f.json", "--policies=a.policy", "-o", "again.json"]
    assert run(again) == 0
    assert json.loads(Path("again.json").read_text())["items"] == json.loads(Path("f.json").read_text())["items"]
    assert run(["simulate", "a.policy", "--fleet=f.json", "--format=json"]) == 0


def test_nodes_and_pods_that_no_policy_reads_are_not_saved(
    with_member: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.policy").write_text("for workloads where true\ndivide evenly\n")
    assert run(["snapshot", "--fleet", "--kubeconfig=config", "--policies=a.policy", "-o", "f.json"]) == 0
    assert {each["kind"] for each in json.loads(Path("f.json").read_text())["items"]} == {"Cluster", "ResourceBinding"}
