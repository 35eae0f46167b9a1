"""Overlays: what each changes, that an API server accepts it, and that applying it twice changes nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from kube_policy_scheduler.daemon.configuration.settings import load_settings
from tests.deploy.manifests import DEPLOY, NAMESPACE, OVERLAYS, Json, built, key, named, only, pod_spec, with_components
from tests.deploy.test_manifests import VERSIONS, invalid
from tests.integration.cluster import Cluster
from tests.integration.conftest import cluster as cluster
from tests.integration.conftest import control_plane as control_plane
from tests.integration.control_plane import assets
from tests.integration.kubectl import kubectl

pytestmark = pytest.mark.needs("kubectl")
EACH = pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: str(path.name))


def overlay_named(name: str) -> list[Json]:
    return built(DEPLOY / "overlays" / name)


Grant = tuple[str, str, str, str]
"""Whether it is of the cluster or of a namespace; group and resource; verb; names, or "" for all."""


def granted(made: list[Json]) -> set[Grant]:
    """Return what the scheduler's service account may do."""
    roles = {key(o): o["rules"] for o in made if o["kind"] in ("ClusterRole", "Role")}
    return {
        ("cluster" if o["kind"] == "ClusterRoleBinding" else "namespace", f"{group}/{resource}", verb, names)
        for o in made
        if o["kind"] in ("ClusterRoleBinding", "RoleBinding")
        and any(subject["name"] == "policy-scheduler" for subject in o["subjects"])
        for rule in roles[o["roleRef"]["kind"], o["roleRef"]["name"]]
        for names in [",".join(rule.get("resourceNames", ()))]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


LEASES = "coordination.k8s.io/leases"
REVIEWS = {
    ("cluster", "authentication.k8s.io/tokenreviews", "create", ""),
    ("cluster", "authorization.k8s.io/subjectaccessreviews", "create", ""),
}
NOT_AN_EXTENDERS = {
    ("cluster", "/pods/status", "patch", ""),
    ("cluster", "/pods", "delete", ""),
    ("cluster", "/persistentvolumeclaims", "patch", ""),
    ("cluster", "/persistentvolumes", "patch", ""),
    ("cluster", "scheduling.k8s.io/podgroups/status", "patch", ""),
    ("cluster", "scheduling.k8s.io/compositepodgroups/status", "patch", ""),
    ("cluster", "resource.k8s.io/resourceclaims/status", "patch", ""),
    ("cluster", "resource.k8s.io/resourceclaims/binding", "patch", ""),
    *(("cluster", "resource.k8s.io/resourceclaims", verb, "") for verb in ("create", "update", "patch", "delete")),
    ("cluster", LEASES, "list", "policy-scheduler"),
    *(("namespace", LEASES, verb, "policy-scheduler") for verb in ("get", "watch", "update")),
    *(("namespace", LEASES, verb, "policy-scheduler-queues") for verb in ("get", "update")),
}
TEMPLATES = {
    ("cluster", name, "get", "")
    for name in ("apps/deployments", "batch/jobs", "resource.k8s.io/resourceclaimtemplates")
}
OF_SHARDS = {("namespace", LEASES, verb, "") for verb in ("get", "list", "update", "delete")}


@EACH
def test_an_overlay_grants_what_its_mode_needs_and_no_more(overlay: Path) -> None:
    """Compares by content: a rule that is added to the base must be wanted, or not wanted, in each overlay."""
    base, found = granted(built(DEPLOY / "base")), granted(built(overlay))
    match overlay.name:
        case "shadow":
            reads = {grant for grant in base if grant[0] == "cluster" and grant[2] in ("get", "list", "watch")}
            wanted = {grant for grant in reads if grant[1] != LEASES} | REVIEWS
        case "estimator":
            reads = {grant for grant in base if grant[0] == "cluster" and grant[2] in ("get", "list", "watch")}
            wanted = {grant for grant in reads if grant[1] != LEASES} | REVIEWS | TEMPLATES
        case "extender":
            assert base >= NOT_AN_EXTENDERS
            wanted = base - NOT_AN_EXTENDERS
        case "sharded":
            wanted = base | OF_SHARDS
        case _:
            wanted = base
    assert found == wanted


@EACH
def test_each_binding_has_its_role_and_no_role_of_the_scheduler_is_unbound(overlay: Path) -> None:
    made = built(overlay)
    roles = {key(o) for o in made if o["kind"] in ("ClusterRole", "Role")}
    bound = {(o["roleRef"]["kind"], o["roleRef"]["name"]) for o in made if o["kind"].endswith("RoleBinding")}
    assert bound <= roles
    for_others = {name for _, name in roles - bound}
    assert all(name.endswith("-metrics") for name in for_others), "Prometheus is bound where it runs"


@pytest.mark.parametrize("file", sorted(DEPLOY.glob("**/kustomization.yaml")), ids=lambda path: str(path.parent.name))
def test_no_kustomization_addresses_a_rule_by_its_place(file: Path) -> None:
    for patch in yaml.safe_load(file.read_text()).get("patches", ()):
        steps = yaml.safe_load(patch["patch"]) if "patch" in patch else []
        paths = [step["path"] for step in steps] if isinstance(steps, list) else []
        assert not [path for path in paths if re.match(r"/rules/\d+", path)], "delete or add a role by its name"


@pytest.mark.parametrize("name", ["shadow", "estimator"])
def test_who_only_looks_on_touches_no_other_scheduler(name: str) -> None:
    made, namespace = overlay_named(name), f"policy-scheduler-{name}"
    assert not [o for o in made if o["kind"] in ("Role", "RoleBinding")]
    assert {o["metadata"].get("namespace", namespace) for o in made} == {namespace}
    ours = {(*key(o), o["metadata"].get("namespace")) for o in overlay_named("high-availability")}
    theirs = {(*key(o), o["metadata"].get("namespace")) for o in made}
    assert not ours & theirs, "applied beside a scheduler it changes nothing of it"


def test_the_configuration_of_kube_scheduler_has_the_paths_of_the_extender() -> None:
    folder = DEPLOY / "overlays" / "extender"
    settings = load_settings(folder / "config.yaml")
    (told,) = yaml.safe_load((folder / "kube-scheduler.yaml").read_text())["extenders"]
    assert told["urlPrefix"].endswith(f":{settings.http.port}{settings.extender.path}")
    assert [told[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt")] == ["filter", "prioritize", "preempt"]
    assert told["enableHTTPS"] is (settings.http.tls is not None)


def test_the_port_of_the_estimator_is_that_of_its_configuration_and_is_mutual() -> None:
    made, told = overlay_named("estimator"), load_settings(DEPLOY / "overlays" / "estimator" / "config.yaml").estimator
    (container,) = pod_spec(named("Deployment", "policy-scheduler", among=made))["containers"]
    assert told.port in [port["containerPort"] for port in container["ports"]]
    assert told.port in [port["port"] for port in named("Service", "policy-scheduler", among=made)["spec"]["ports"]]
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    for file in (told.certificate_file, told.key_file, told.client_ca_file):
        assert file is not None
        assert str(file.parent) in mounted


def arguments(made: list[Json]) -> list[str]:
    (container,) = pod_spec(named("Deployment", "policy-scheduler", among=made))["containers"]
    return list(container["args"])


def test_there_is_an_overlay_for_each_way_to_run() -> None:
    wanted = {"second-scheduler", "main-scheduler", "high-availability", "sharded", "local-trial"}
    assert wanted <= {path.name for path in OVERLAYS}


@pytest.mark.parametrize(
    "overlay",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.dear] * (path.name not in ("main-scheduler", "sharded")))
        for path in OVERLAYS
    ],
)
def test_an_api_server_takes_it_and_taking_it_again_changes_nothing(
    cluster: Cluster, overlay: Path, tmp_path: Path
) -> None:
    config = cluster.kubeconfig(tmp_path / "admin")
    said = kubectl(config, "apply", "--server-side", "--force-conflicts", "-k", str(overlay))
    names = {(o["kind"].lower(), o["metadata"]["name"]) for o in built(overlay)}
    assert len(said.splitlines()) == len(names)
    before = versions(config, overlay)
    # nobody runs the webhook here: while it is asked, no ConfigMap with policies can be written
    cluster.api.delete_all("validatingwebhookconfigurations")
    kubectl(config, "apply", "--server-side", "--force-conflicts", "-k", str(overlay))
    assert versions(config, overlay) == before


def test_as_most_people_apply_it(cluster: Cluster, tmp_path: Path) -> None:
    config, overlay = cluster.kubeconfig(tmp_path / "admin"), str(DEPLOY / "overlays" / "high-availability")
    left = tmp_path / "left.yaml"  # by other overlays, if this cluster is not a new one
    left.write_text(yaml.safe_dump_all(o for o in built(Path(overlay)) if o["kind"] != "Namespace"))
    kubectl(config, "delete", "--ignore-not-found", "-f", str(left))
    kubectl(config, "apply", "-k", overlay)
    before = versions(config, Path(overlay))
    again = kubectl(config, "apply", "-k", overlay)
    # of a budget kubectl says "configured" whatever it is told, because its selector is replaced as a whole
    assert [x for x in again.splitlines() if not x.endswith(" unchanged") and "poddisruptionbudget" not in x] == []
    assert versions(config, Path(overlay)) == before
    assert kubectl(config, "diff", "-k", overlay) == ""


def versions(config: Path, overlay: Path) -> dict[tuple[str, str], str]:
    found = yaml.safe_load(kubectl(config, "get", "-k", str(overlay), "-o", "yaml"))
    kept = (o for o in found["items"] if o["kind"] != "ValidatingWebhookConfiguration")
    return {key(o): o["metadata"]["resourceVersion"] for o in kept}


@EACH
def test_its_configuration_is_one_that_the_program_takes(overlay: Path, tmp_path: Path) -> None:
    for config_map in built(overlay):
        if config_map["kind"] == "ConfigMap" and "config.yaml" in config_map["data"]:
            file = tmp_path / "config.yaml"
            file.write_text(config_map["data"]["config.yaml"])
            settings = load_settings(file)
            tells = settings.mode not in ("shadow", "estimator")  # which write nothing
            assert settings.policies.config_map == (f"{NAMESPACE}/policies" if tells else None)


@EACH
def test_its_pods_are_restricted_and_have_probes(overlay: Path) -> None:
    for deployment in (o for o in built(overlay) if o["kind"] == "Deployment"):
        spec = pod_spec(deployment)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["priorityClassName"] == "system-cluster-critical"
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not any("subPath" in mount for mount in container["volumeMounts"])
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()


class TestReplicas:
    """One replica on standby, or several that share pods."""

    def test_high_availability_is_two_on_two_nodes_of_which_one_always_stays(self) -> None:
        made = overlay_named("high-availability")
        deployment = only("Deployment", among=made)
        assert deployment["spec"]["replicas"] == 2
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        terms = pod_spec(deployment)["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert terms[0]["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
        for term in terms:
            assert term["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= labels.items()
        budget = only("PodDisruptionBudget", among=made)["spec"]
        assert budget["selector"]["matchLabels"].items() <= labels.items()
        assert budget["minAvailable"] == 1

    def test_a_budget_never_blocks_a_drain_of_a_single_replica(self) -> None:
        for overlay in OVERLAYS:
            made = built(overlay)
            budgets = [o for o in made if o["kind"] == "PodDisruptionBudget"]
            replicas = {o["metadata"]["name"]: o["spec"]["replicas"] for o in made if o["kind"] == "Deployment"}
            for budget in budgets:
                assert replicas[budget["metadata"]["name"]] > budget["spec"]["minAvailable"]

    def test_sharded_replicas_may_keep_leases_of_their_own(self) -> None:
        made = overlay_named("sharded")
        assert "--sharding" in arguments(made)
        assert only("Deployment", among=made)["spec"]["replicas"] == 3
        (rule,) = named("Role", "policy-scheduler-shards", among=made)["rules"]
        assert rule["resources"] == ["leases"]


class TestMainScheduler:
    """Its own pods do not wait for themselves."""

    def test_serves_pods_that_name_no_scheduler(self) -> None:
        assert "--scheduler-name=default-scheduler" in arguments(overlay_named("main-scheduler"))

    def test_no_overlay_needs_itself_to_place_its_pods(self) -> None:
        for overlay in OVERLAYS:
            made = built(overlay)
            config = yaml.safe_load(named("ConfigMap", "policy-scheduler", among=made)["data"]["config.yaml"])
            served = {*config.get("schedulerNames", ["policy-scheduler"])}
            served |= {a.partition("=")[2] for a in arguments(made) if a.startswith("--scheduler-name=")}
            for deployment in (o for o in made if o["kind"] == "Deployment"):
                assert pod_spec(deployment).get("schedulerName", "default-scheduler") not in served

    def test_the_configuration_for_kube_scheduler_names_our_scheduler(self) -> None:
        text = (DEPLOY / "overlays" / "main-scheduler" / "kube-scheduler.yaml").read_text()
        profiles = yaml.safe_load(text)["profiles"]
        spec = pod_spec(only("Deployment", among=overlay_named("main-scheduler")))
        assert [profile["schedulerName"] for profile in profiles] == [spec["schedulerName"]]

    def test_kube_scheduler_accepts_its_configuration(self, tmp_path: Path) -> None:
        programs = assets()
        if programs is None or not (programs / "kube-scheduler").exists():
            pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-scheduler")
        text = (DEPLOY / "overlays" / "main-scheduler" / "kube-scheduler.yaml").read_text()
        access = tmp_path / "scheduler.conf"
        access.write_text(
            "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
            " clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: a, user: {}}]}"
        )
        config = tmp_path / "config.yaml"
        config.write_text(text.replace("/etc/kubernetes/scheduler.conf", str(access)))
        written = tmp_path / "written.yaml"
        options = [f"--config={config}", f"--write-config-to={written}", f"--cert-dir={tmp_path}"]
        subprocess.run([programs / "kube-scheduler", *options], check=True, capture_output=True, timeout=30)
        assert "schedulerName: bootstrap-scheduler" in written.read_text()


COMPONENTS = sorted(path.parent for path in DEPLOY.glob("components/*/kustomization.yaml"))
NEEDED = {"sharding": ["high-availability"]}
EACH_COMPONENT = pytest.mark.parametrize("component", COMPONENTS, ids=lambda path: str(path.name))
FOREIGN = yaml.safe_load(Path(__file__).with_name("foreign_kinds.yaml").read_text())


def with_component(name: str) -> list[Json]:
    """Return the base with a component and those that it needs."""
    return with_components(*NEEDED.get(name, ()), name)


@EACH_COMPONENT
def test_each_component_goes_with_the_base(component: Path) -> None:
    made = with_component(component.name)
    base = {key(o): o for o in built(DEPLOY / "base")}
    assert [o for o in made if base.get(key(o)) != o], "it changes something"
    assert len({key(o) for o in made}) == len(made)
    for o in made:
        assert o["metadata"].get("namespace", NAMESPACE) == NAMESPACE
        if o["kind"] != "ConfigMap":
            assert o["metadata"]["labels"]["app.kubernetes.io/name"].startswith("policy-scheduler")
        if o["kind"] in FOREIGN:
            jsonschema.validate(o["spec"], {"$defs": FOREIGN["$defs"], **FOREIGN[o["kind"]]})
    assert invalid([o for o in made if o["kind"] not in FOREIGN], VERSIONS[-1]) == []


@pytest.mark.parametrize("namespace", ["policy-scheduler", "elsewhere"])
def test_the_webhook_is_asked_for_the_namespace_that_the_kustomization_names(namespace: str) -> None:
    for component in ("webhook-self-managed", "webhook-cert-manager"):
        made = with_components(component, namespace=namespace)
        (webhook,) = only("ValidatingWebhookConfiguration", among=made)["webhooks"]
        assert webhook["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": namespace}
        assert webhook["clientConfig"]["service"]["namespace"] == namespace


def test_the_webhook_also_checks_scheduling_policies_where_both_are_wanted() -> None:
    made = with_components("webhook-self-managed", "scheduling-policies", namespace="elsewhere")
    webhooks = only("ValidatingWebhookConfiguration", among=made)["webhooks"]
    assert [rule["resources"] for webhook in webhooks for rule in webhook["rules"]] == [
        ["configmaps"],
        ["schedulingpolicies"],
    ]
    assert {webhook["clientConfig"]["service"]["namespace"] for webhook in webhooks} == {"elsewhere"}
    spec = pod_spec(named("Deployment", "policy-scheduler-webhook", among=made))
    assert "--config=/etc/policy-scheduler/config.yaml" in spec["containers"][0]["args"]


def test_cert_managers_certificate_is_for_the_name_that_the_api_server_calls() -> None:
    made = with_component("webhook-cert-manager")
    certificate, issuer = only("Certificate", among=made), only("Issuer", among=made)
    configuration = only("ValidatingWebhookConfiguration", among=made)
    (webhook,) = configuration["webhooks"]
    service = webhook["clientConfig"]["service"]
    assert f"{service['name']}.{service['namespace']}.svc" in certificate["spec"]["dnsNames"]
    assert certificate["spec"]["issuerRef"] == {"kind": "Issuer", "name": issuer["metadata"]["name"]}
    assert configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == "/".join(
        certificate["metadata"][part] for part in ("namespace", "name")
    )
    volumes = pod_spec(named("Deployment", "policy-scheduler-webhook", among=made))["volumes"]
    assert certificate["spec"]["secretName"] in [each["secret"]["secretName"] for each in volumes if "secret" in each]


def test_prometheus_comes_to_the_port_as_it_is() -> None:
    made = with_component("monitoring")
    (endpoint,) = only("ServiceMonitor", among=made)["spec"]["endpoints"]
    service = named("Service", "policy-scheduler", among=made)
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    roles = {o["metadata"]["name"] for o in made if o["kind"] == "ClusterRole"}
    assert {o["roleRef"]["name"] for o in made if o["kind"] == "ClusterRoleBinding"} <= roles


def test_the_trial_needs_nothing_that_small_clusters_lack() -> None:
    made = overlay_named("local-trial")
    (container,) = pod_spec(only("Deployment", among=made))["containers"]
    assert container["imagePullPolicy"] == "Never"
    assert "prometheus" not in named("ConfigMap", "policy-scheduler", among=made)["data"]["config.yaml"]
    assert "promql" not in named("ConfigMap", "policies", among=made)["data"]["default.policy"]


def test_with_kube_prometheus_the_default_policy_reads_metrics_and_the_scheduler_asks_for_them() -> None:
    made = with_component("kube-prometheus")
    assert "--prometheus-url=http://prometheus-operated.monitoring:9090" in arguments(made)
    policies = named("ConfigMap", "policies", among=made)["data"]
    assert policies.keys() == {"default.policy"}
    assert "node_cpu_seconds_total" in policies["default.policy"]
