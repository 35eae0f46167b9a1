"""The policies of the manifests need nothing that a cluster may lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cli.policies import compiled
from kube_policy_scheduler.cluster.objects import NodeAddress
from kube_policy_scheduler.documents.yaml_document import read_source
from kube_policy_scheduler.tooling.snapshot.fields import recorded_objects
from tests.deploy.manifests import BASE, DEPLOY
from tests.fakes.prometheus_server import PrometheusServer
from tests.framework.worlds import make_node, make_pod

ADDRESSES = {"blade-a": "10.0.0.1", "blade-b": "10.0.0.2"}


def test_the_base_needs_no_metrics() -> None:
    policies = compiled([read_source(path) for path in (BASE / "policies").glob("*.policy")])
    assert policies.queries == ()
    assert "prometheus" not in (BASE / "config.yaml").read_text()


@pytest.mark.long
@pytest.mark.parametrize(
    "instances",
    [{name: name for name in ADDRESSES}, {name: f"{address}:9100" for name, address in ADDRESSES.items()}],
    ids=["kube-prometheus", "kube-prometheus-stack"],
)
def test_the_component_reads_what_node_exporter_and_kube_prometheus_give(
    instances: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """kube-prometheus writes the node's name over `instance`, the chart leaves the address and a port."""
    nodes = [make_node(name, {"cpu": "4", "labels": {}}) for name in ADDRESSES]
    for node in nodes:
        node.status.addresses = [NodeAddress("InternalIP", ADDRESSES[node.metadata.name])]
    waiting = make_pod("web", {"cpu": "1"})
    waiting.spec.scheduler_name = "policy-scheduler"
    things = {"apiVersion": "v1", "kind": "List", "items": recorded_objects([*nodes, waiting])}
    (tmp_path / "cluster.json").write_text(json.dumps(things))
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = PrometheusServer(folder)
    for age, idle in ((240.0, {"blade-a": 0.0, "blade-b": 0.0}), (10.0, {"blade-a": 23.0, "blade-b": 207.0})):
        server.backfill(
            {
                "node_cpu_seconds_total": [
                    ({"instance": instances[name], "cpu": cpu, "mode": "idle"}, seconds)
                    for name, seconds in idle.items()
                    for cpu in "01"
                ]
            },
            age_seconds=age,
        )
    policy = str(DEPLOY / "components/kube-prometheus/default.policy")
    asked = ["--policies", policy, "--cluster", str(tmp_path / "cluster.json"), "--format=json"]
    with server:
        run(["doctor", *asked, "--prometheus-url", server.url])
        examined = json.loads(capsys.readouterr().out)["findings"]
        assert run(["why", "web", *asked, "--prometheus-url", server.url]) == 0
        decided = json.loads(capsys.readouterr().out)

    (metric,) = [one for one in examined if one["check"] == "metrics"]
    assert (metric["status"], metric["text"]) == ("ok", "on 2 of 2 nodes")
    assert decided["host"] == "blade-b"
