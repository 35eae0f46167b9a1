"""Canaries in a cluster: `policyctl canary` on a ConfigMap changes it in one step, and the daemon follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_policy_scheduler.adapters.kube import config_maps
from kube_policy_scheduler.cli.main import run
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import ZONE, node, pod

STABLE = "scheduler web-scheduler\nfilter node.ready\n"
CANARY = "canary of web for 10%\nfilter node.ready and fits(cpu)\n"


@pytest.fixture
def where(cluster: Cluster, tmp_path: Path) -> list[str]:
    """A ConfigMap with a canary, as options of the command."""
    data = {"web.policy": STABLE, "next.policy": CANARY, "README": "not a policy"}
    cluster.ensure(
        "configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policies"}, "data": data}
    )
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    return ["--config-map", "default/policies", "--kubeconfig", str(kubeconfig)]


def data(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.api.get("configmaps", "policies")["data"]
    return found


def test_abort_removes_the_canary_and_nothing_else(
    cluster: Cluster, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["canary", "list", *where]) == 0
    assert run(["canary", "abort", "--dry-run", *where]) == 0
    assert set(data(cluster)) == {"web.policy", "next.policy", "README"}

    assert run(["canary", "abort", *where]) == 0

    assert data(cluster) == {"web.policy": STABLE, "README": "not a policy"}
    assert run(["canary", "abort", *where]) == 1
    assert "next.policy is removed\nthere is no canary\n" in capsys.readouterr().out


def test_promote_changes_both_keys_in_one_step(cluster: Cluster, where: list[str]) -> None:
    assert run(["canary", "promote", *where]) == 0

    promoted = "scheduler web-scheduler\nfilter node.ready and fits(cpu)\n"
    assert data(cluster) == {"web.policy": promoted, "README": "not a policy"}


def test_a_concurrent_change_is_not_overwritten(
    cluster: Cluster, where: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = config_maps.read_config_map

    async def read_then_changed(*given: str, **more: str | None) -> config_maps.ConfigMapData:
        found = await read(*given, **more)  # type: ignore[arg-type]
        cluster.api.patch("configmaps", "policies", {"data": {"web.policy": "filter node.ready or true\n"}})
        return found

    monkeypatch.setattr(config_maps, "read_config_map", read_then_changed)

    assert run(["canary", "promote", *where]) == 2

    assert data(cluster)["web.policy"] == "filter node.ready or true\n"
    assert data(cluster)["next.policy"] == CANARY
    assert "changed since it was read, and was not written" in capsys.readouterr().err


def test_a_config_map_that_is_not_there_is_named(where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    where[1] = "default/polices"

    assert run(["canary", "list", *where]) == 2

    assert "ConfigMap default/polices:" in capsys.readouterr().err


def test_a_canary_decides_its_pods_until_its_file_is_gone(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    cluster.add_nodes(node("in-a", labels={ZONE: "a"}), node("in-b", labels={ZONE: "b"}))
    stable = {"zone.policy": f"filter label {ZONE}=a\n"}
    canary = f'canary of zone for pods where pod.label.team == "brave"\nfilter label {ZONE}=b\n'
    policies.update(stable | {"next.policy": canary})
    process = scheduler().start_ready()

    cluster.add_pods(pod("brave", labels={"team": "brave"}), pod("other"))
    assert cluster.wait_bound("brave", "other") == {"brave": "in-b", "other": "in-a"}
    compared = 'policy_scheduler_canary_comparisons_total{canary="next",policy="zone",result="other_node"} 1.0'
    assert compared in process.get("/metrics")[1]

    policies.update(stable)  # as `policyctl canary abort` has it
    eventually(lambda: process.policies()["generation"] == 2, else_=process.log)
    cluster.add_pods(pod("brave-2", labels={"team": "brave"}))
    assert cluster.wait_bound("brave-2")["brave-2"] == "in-a"
    assert cluster.placements()["brave"] == "in-b"
