"""Every overlay uses HTTPS and tokens; one component makes the port plain HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kube_policy_scheduler.daemon.configuration.settings import load_settings
from tests.deploy.manifests import BASE, OVERLAYS, Json, built, named, only, pod_spec, with_components

ROUTES = ["/", "/status", "/policies", "/metrics", "/configz", "/debug/decisions", "/debug/shadow", "/debug/state"]
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def written() -> dict[tuple[str, str], Json]:
    found = yaml.safe_load_all((BASE / "access.yaml").read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_the_scheduler_may_only_review_the_access_of_others() -> None:
    rules = written()["ClusterRole", "policy-scheduler-reviews"]["rules"]
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in rules] == [
        (["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        (["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ]


def test_only_one_unused_account_has_access() -> None:
    bound = {
        each["roleRef"]["name"]: [subject["name"] for subject in each["subjects"]]
        for (kind, _), each in written().items()
        if kind == "ClusterRoleBinding"
    }
    assert bound == {
        "policy-scheduler-reviews": ["policy-scheduler"],
        "policy-scheduler-viewer": ["policy-scheduler-viewer"],
    }
    assert written()["ServiceAccount", "policy-scheduler-viewer"]["automountServiceAccountToken"] is False


def test_the_viewer_sees_every_route_and_prometheus_one() -> None:
    roles = written()
    assert roles["ClusterRole", "policy-scheduler-viewer"]["rules"] == [{"nonResourceURLs": ROUTES, "verbs": ["get"]}]
    assert roles["ClusterRole", "policy-scheduler-metrics"]["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]


def schemes(made: list[Json]) -> set[str]:
    """Return the scheme that kubelets and Prometheus are configured to use."""
    (container,) = pod_spec(named("Deployment", "policy-scheduler", among=made))["containers"]
    found = {container[probe]["httpGet"].get("scheme", "HTTP").lower() for probe in PROBES}
    found.add(named("Service", "policy-scheduler", among=made)["metadata"]["annotations"]["prometheus.io/scheme"])
    for monitor in (o for o in made if o["kind"] == "ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        found.add(endpoint.get("scheme", "http"))
        assert ("bearerTokenFile" in endpoint) == ("scheme" in endpoint), "a token is sent over TLS alone"
    return found


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: str(path.name))
def test_the_port_is_secure_and_its_probes_know(overlay: Path, tmp_path: Path) -> None:
    made = built(overlay)
    config = tmp_path / "config.yaml"
    config.write_text(named("ConfigMap", "policy-scheduler", among=made)["data"]["config.yaml"])
    http = load_settings(config).effective().http
    assert http.host == "0.0.0.0"
    assert http.authentication == "kubernetes"
    assert http.tls is not None
    (container,) = pod_spec(named("Deployment", "policy-scheduler", among=made))["containers"]
    assert not [argument for argument in container["args"] if argument.startswith("--http")]
    assert schemes(made) == {"https"}
    (subject,) = next(
        o["subjects"] for o in made if o["kind"] == "ClusterRoleBinding" and o["roleRef"]["name"].endswith("-reviews")
    )
    assert subject["namespace"] == only("Namespace", among=made)["metadata"]["name"]


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("components", [["plain-http"], ["monitoring", "plain-http"]], ids=lambda each: "+".join(each))
def test_one_component_makes_it_plain_everywhere(components: list[str]) -> None:
    made = with_components(*components)
    (container,) = pod_spec(named("Deployment", "policy-scheduler", among=made))["containers"]
    assert "--http-plain" in container["args"]
    assert schemes(made) == {"http"}
    granted = {
        name for o in made if o["kind"] == "ClusterRole" for rule in o["rules"] for name in rule.get("resources", ())
    }
    assert not granted & {"tokenreviews", "subjectaccessreviews"}
