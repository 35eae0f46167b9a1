"""components/secure: what it adds to the base, and nothing else."""

from __future__ import annotations

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, Json, built, objects, only, pod_spec

SECURE = DEPLOY / "components" / "secure"
ROUTES = ["/", "/status", "/policies", "/metrics", "/configz", "/debug/decisions", "/debug/shadow", "/debug/state"]


def written() -> dict[tuple[str, str], Json]:
    found = yaml.safe_load_all((SECURE / "cluster-role.yaml").read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_the_scheduler_itself_may_ask_about_others_and_no_more() -> None:
    rules = written()["ClusterRole", "policy-scheduler-reviews"]["rules"]
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in rules] == [
        (["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        (["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ]
    bound = [each for (kind, _), each in written().items() if kind == "ClusterRoleBinding"]
    assert [each["roleRef"]["name"] for each in bound] == ["policy-scheduler-reviews"], "who may look, people decide"


def test_the_base_does_not_have_what_only_this_needs() -> None:
    granted = {
        name for each in objects() if each["kind"] == "ClusterRole" for r in each["rules"] for name in r["resources"]
    }
    assert not granted & {"tokenreviews", "subjectaccessreviews"}


def test_the_viewer_sees_every_route_and_prometheus_one() -> None:
    roles = written()
    assert roles["ClusterRole", "policy-scheduler-viewer"]["rules"] == [{"nonResourceURLs": ROUTES, "verbs": ["get"]}]
    assert roles["ClusterRole", "policy-scheduler-metrics"]["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("overlay", ["secure", "main-scheduler"])
def test_the_port_is_secure_and_its_probes_know(overlay: str) -> None:
    made = built(DEPLOY / "overlays" / overlay)
    (container,) = pod_spec(only("Deployment", among=made))["containers"]
    assert "--http-secure" in container["args"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    assert only("Service", among=made)["metadata"]["annotations"]["prometheus.io/scheme"] == "https"
