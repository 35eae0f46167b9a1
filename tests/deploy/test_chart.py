"""The Helm chart makes what the kustomizations make. It is rendered here, and by helm where that is installed."""

from __future__ import annotations

import copy
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.daemon.configuration.settings import load_settings
from tests.deploy import chart
from tests.deploy.go_template import render
from tests.deploy.manifests import (
    BASE,
    DEPLOY,
    ROOT,
    Json,
    built,
    in_namespace,
    key,
    named,
    pod_spec,
    with_components,
)
from tests.deploy.test_manifests import VERSIONS, invalid

pytestmark = pytest.mark.needs("kubectl")
VALUES: Json = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
HEAD: Json = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
HELM = shutil.which("helm")
EVERYTHING: Json = {
    "monitoring": {"enabled": True},
    "rebalancing": {"enabled": True},
    "sharding": {"enabled": True},
    "schedulingPolicies": {"enabled": True},
    "webhook": {"enabled": True},
}
CASES: dict[str, Json] = {
    "default": {},
    "everything": EVERYTHING,
    "one replica": {"replicas": 1, "networkPolicy": {"enabled": False}, "resourceQuota": {"enabled": False}},
    "webhook": {"webhook": {"enabled": True}},
    "own": {
        "image": {"repository": "registry.example.com/scheduler", "tag": "0.1.0-fast"},
        "imagePullSecrets": [{"name": "pull"}],
        "extraArgs": ["--log-level=debug", "--sharding"],
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "policies": {"default.policy": "filter node.ready\n", "web.policy": "score 1\n"},
    },
    **{name: {"install": name} for name in chart.INSTEAD},
    "own fleet": {
        "install": "karmada",
        "fleet": {
            "config": {"apiVersion": "policy-scheduler/v1alpha1", "kind": "PolicySchedulerConfiguration"},
            "policies": {"web.policy": "for workloads where true\ndivide evenly\n"},
        },
    },
}
SCHEDULER = [case for case, given in CASES.items() if given.get("install", "scheduler") == "scheduler"]


def values(case: str) -> Json:
    found = copy.deepcopy(VALUES)
    for name, value in CASES[case].items():
        found[name] = {**found[name], **value} if isinstance(value, dict) and name != "policies" else value
    return found


def rendered(case: str, *, namespace: str = "policy-scheduler") -> list[Json]:
    """Return the objects that the chart makes."""
    files = {f"files/{path.name}": path.read_text(encoding="utf-8") for path in (chart.CHART / "files").iterdir()}
    data: dict[str, Any] = {
        "Values": values(case),
        "Release": {"Namespace": namespace},
        "Chart": {"AppVersion": HEAD["appVersion"]},
        "Files": files,
    }
    texts = [render(path.read_text(encoding="utf-8"), data) for path in sorted((chart.CHART / "templates").iterdir())]
    return [made for text in texts for made in yaml.safe_load_all(text) if made is not None]


def test_the_templates_are_those_of_the_kustomizations() -> None:
    made = chart.templates()
    for name, text in made.items():
        found = (chart.CHART / "templates" / name).read_text(encoding="utf-8")
        assert found == text, "run: python -m tests.deploy.chart"
    assert {path.name for path in (chart.CHART / "templates").iterdir()} == {*made, chart.BY_HAND}


@pytest.mark.parametrize("case", CASES)
def test_kubernetes_takes_what_it_makes(case: str) -> None:
    made = rendered(case)
    assert len({key(o) for o in made}) == len(made)
    foreign = ("ServiceMonitor", "PrometheusRule")
    for version in VERSIONS:
        assert invalid([o for o in made if o["kind"] not in foreign], version) == []


def test_it_makes_what_the_base_makes_in_any_namespace() -> None:
    for namespace in ("policy-scheduler", "elsewhere"):
        made = {key(o): o for o in rendered("one replica", namespace=namespace)}
        for wanted in with_components("high-availability", namespace=namespace):
            if wanted["kind"] in (
                "Namespace",
                "Deployment",
                "ConfigMap",
                "PodDisruptionBudget",
                "NetworkPolicy",
                "ResourceQuota",
            ):
                continue
            if wanted["kind"].startswith("ValidatingAdmissionPolicy"):
                wanted["metadata"].pop("namespace", None)
                made[key(wanted)]["metadata"].pop("namespace", None)
            assert made[key(wanted)] == wanted
        spec = pod_spec(named("Deployment", "policy-scheduler", among=[*made.values()]))
        theirs = pod_spec(named("Deployment", "policy-scheduler", among=with_components("high-availability")))
        assert {name: value for name, value in spec.items() if value or name in theirs} == theirs


def test_each_switch_makes_the_objects_of_its_component() -> None:
    plain, everything = ({key(o) for o in rendered(case)} for case in ("default", "everything"))
    components = [name for name in chart.COMPONENTS if name != "high-availability"]
    base = {key(o) for o in built(BASE)}
    assert everything - plain == {key(o) for o in with_components(*components)} - base
    (webhook,) = (o for o in rendered("everything") if o["kind"] == "ValidatingWebhookConfiguration")
    assert len(webhook["webhooks"]) == 2
    (webhook,) = (o for o in rendered("webhook") if o["kind"] == "ValidatingWebhookConfiguration")
    assert len(webhook["webhooks"]) == 1


@pytest.mark.parametrize(("name", "folder"), chart.INSTEAD.items())
def test_it_makes_what_the_manifests_of_a_fleet_make_in_any_namespace(name: str, folder: str) -> None:
    own = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())["namespace"]
    for namespace in (own, "elsewhere"):
        made = {key(o): o for o in rendered(name, namespace=namespace)}
        wanted = {key(o): o for o in in_namespace(folder, namespace) if o["kind"] != "Namespace"}
        assert made.keys() == wanted.keys()
        for each, object_ in wanted.items():
            if each[0] == "Deployment":
                theirs, ours = pod_spec(object_), pod_spec(made[each])
                assert {key: ours[key] for key in ("volumes", "serviceAccountName")} == {
                    key: theirs[key] for key in ("volumes", "serviceAccountName")
                }
                (container,), (wanted_container,) = ours["containers"], theirs["containers"]
                assert container["args"] == wanted_container["args"]
                assert container["ports"] == wanted_container["ports"]
            elif each[0] == "ConfigMap":
                text = yaml.safe_dump(object_["data"]).replace("cluster-inventory", namespace)
                assert made[each]["data"] == yaml.safe_load(text)
            else:
                assert made[each] == object_


def test_values_take_the_place_of_the_configuration_and_policies_of_a_fleet(tmp_path: Path) -> None:
    made = rendered("own fleet")
    config = named("ConfigMap", "policy-scheduler-fleet", among=made)["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(config)
    assert load_settings(tmp_path / "config.yaml").fleet.engine == "karmada"
    policies = named("ConfigMap", "policy-scheduler-fleet-policies", among=made)["data"]
    assert policies == {"web.policy": "for workloads where true\ndivide evenly\n"}


def test_its_configuration_and_policies_are_taken(tmp_path: Path) -> None:
    for case in SCHEDULER:
        made = rendered(case, namespace="here")
        (tmp_path / "config.yaml").write_text(named("ConfigMap", "policy-scheduler", among=made)["data"]["config.yaml"])
        assert load_settings(tmp_path / "config.yaml").policies.config_map == "here/policies"
        for name, text in named("ConfigMap", "policies", among=made)["data"].items():
            (tmp_path / name).write_text(text)
            assert run(["lint", str(tmp_path / name)]) == 0
    assert VALUES["policies"] == {"default.policy": (BASE / "policies/default.policy").read_text(encoding="utf-8")}
    spec = pod_spec(named("Deployment", "policy-scheduler", among=rendered("own")))
    assert spec["containers"][0]["image"] == "registry.example.com/scheduler:0.1.0-fast"
    assert spec["containers"][0]["args"][1:] == ["--log-level=debug", "--sharding"]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]


def test_the_chart_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (HEAD["version"], HEAD["appVersion"]) == (project["version"], project["version"])


@pytest.mark.skipif(HELM is None, reason="helm is not installed")
@pytest.mark.parametrize("case", CASES)
def test_helm_makes_the_same(case: str, tmp_path: Path) -> None:
    assert HELM is not None
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values(case)))
    command = [
        HELM,
        "template",
        "ours",
        str(chart.CHART),
        "--namespace",
        "policy-scheduler",
        "--values",
        str(tmp_path / "values.yaml"),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = {key(o): o for o in yaml.safe_load_all(said) if o is not None}
    ours = {key(o): o for o in rendered(case)}
    for made in (theirs, ours):
        for o in made.values():
            if o["kind"] == "Deployment":  # of a text that toYaml writes in another way
                o["spec"]["template"]["metadata"].pop("annotations", None)
    assert theirs == ours
