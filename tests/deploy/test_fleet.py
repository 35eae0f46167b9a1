"""The manifests of the decision maker: valid, together with its settings, and described by its page."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import msgspec
import pytest
import yaml

from kube_policy_scheduler.daemon.configuration.settings import load_settings
from kube_policy_scheduler.daemon.fleet.fleet_metrics import FleetMetrics, FleetState
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, PlacementAlone
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster
from kube_policy_scheduler.fleet.model import Placement
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.fleet.tallies import MemberReading
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.times import Steady
from tests.deploy.manifests import DEPLOY, Json
from tests.deploy.test_manifests import VERSIONS, invalid
from tests.fleet.karmada.bindings import raw_cluster
from tests.fleet.worlds import DYNAMIC, cluster, fleet, workload

KINDS = "control-plane", "members", "shadow", "host", "multikueue", "ocm", "clusterprofile"
FOLDERS = [DEPLOY / "fleet" / name for name in KINDS]
PAGE = (DEPLOY / "FLEET.md").read_text(encoding="utf-8")


def objects(folder: Path) -> list[Json]:
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [found for name in names for found in yaml.safe_load_all((folder / name).read_text())]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.name))
def test_the_manifests_are_valid_and_every_file_is_used(folder: Path) -> None:
    for version in VERSIONS:
        assert invalid(objects(folder), version) == []
    loaded = yaml.safe_load((folder / "kustomization.yaml").read_text())
    files = [file for made in loaded.get("configMapGenerator", ()) for file in made["files"]]
    used = {"kustomization.yaml", *loaded["resources"], *files}
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert used == {path for path in there if not path.endswith(".test.yaml")}


@pytest.mark.parametrize("folder", FOLDERS[3:], ids=lambda path: str(path.name))
def test_the_configuration_fits_the_deployment(folder: Path) -> None:
    settings = load_settings(folder / "config.yaml")
    (deployment,) = [each for each in objects(folder) if each["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"][0] == "fleet"
    assert container["ports"][0]["containerPort"] == settings.http.port
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    kubeconfig = settings.kubernetes.kubeconfig
    assert (kubeconfig is None) is (spec.get("automountServiceAccountToken", True))
    assert kubeconfig is None or str(kubeconfig.parent) in mounted
    assert str(settings.policies.path) in mounted
    assert settings.http.in_force().tls is None
    assert {container[probe]["httpGet"].get("scheme", "HTTP") for probe in ("livenessProbe", "readinessProbe")} == {
        "HTTP"
    }
    assert spec["serviceAccountName"] == settings.fleet.lease_name


def test_the_default_policy_leaves_everything_to_the_placement() -> None:
    files = sorted((DEPLOY / "fleet/host/policies").glob("*.policy"))
    loaded = load([Source(file.name, file.read_text()) for file in files])
    assert not loaded.diagnostics
    assert loaded.policy_set is not None
    asked, where = workload(12, Placement(scheduling=DYNAMIC)), fleet(cluster("a", 6), cluster("b", 18))
    assert loaded.policy_set.fleet.decide(asked, where).targets == place(asked, where).targets


def test_each_metric_has_a_row_in_the_page() -> None:
    maker = DecisionMaker(["fleet"], rules=PlacementAlone())
    metrics = FleetMetrics(lambda: FleetState(maker, leading=True, writes_under_way=0, now=Steady(0.0)))
    made = {family.name: family.documentation for family in metrics.registry.collect()}
    rows = dict(re.findall(r"^\| `(policy_scheduler_\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    told = {name.removesuffix("_total"): f"{text[0].upper()}{text[1:]}." for name, text in rows.items()}
    assert told == made


def test_clusters_that_cannot_be_read_are_counted() -> None:
    maker = DecisionMaker(["fleet"], rules=PlacementAlone())
    for name in ("a", "b", "c"):
        maker.set_cluster(msgspec.convert(raw_cluster(name, cpu=6), KarmadaCluster), Steady(0.0))
    maker.tallies.members.update(a=MemberReading(None, "no"), b=MemberReading(Steady(0.0)), gone=MemberReading())
    metrics = FleetMetrics(lambda: FleetState(maker, leading=True, writes_under_way=0, now=Steady(5.0)))
    sample = partial(metrics.registry.get_sample_value, "policy_scheduler_fleet_member_unread")
    assert [sample({"cluster": name}) for name in ("a", "b", "c", "gone")] == [1.0, 0.0, None, None]
    age = partial(metrics.registry.get_sample_value, "policy_scheduler_fleet_member_age_seconds")
    assert [age({"cluster": name}) for name in ("a", "b", "c")] == [None, 5.0, None]
