"""The cluster of a test, embedded or real: nodes, pods, their events, and a recount."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from kube_policy_scheduler.embedded.access import User, service_account
from tests.fakes.secure_cluster import SecureCluster
from tests.integration.api import Api, ApiRefusal, Endpoint
from tests.integration.conditions import eventually
from tests.integration.control_plane import ControlPlane
from tests.patience import PATIENCE_SECONDS

Json = dict[str, Any]

_SUFFIXES: dict[str, Fraction] = {"": Fraction(1), "m": Fraction(1, 1000)} | {
    letter + end: Fraction(base**power)
    for base, end in ((1000, ""), (1024, "i"))
    for power, letter in enumerate("kMGT" if not end else "KMGT", 1)
}


class Cluster(ABC):
    """One cluster, as its administrator sees it."""

    has_kubelets: bool
    """Whether bound pods come to run, and are checked by their node before that."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.api = Api(endpoint)
        self.namespaces = ["default"]
        """Where pods are looked for."""

    @abstractmethod
    def token(self, namespace: str, account: str) -> str:
        """Return a token of a service account."""

    @abstractmethod
    def certificate(self, user: str, *, group: str = "") -> tuple[Path, Path]:
        """Return the files of a client certificate for a user, and of its key."""

    def kubeconfig(self, path: Path, *, token_file: Path | None = None) -> Path:
        """Write the administrator's kubeconfig, or that of whose token is in a file."""
        cluster: Json = {"server": self.endpoint.url}
        user: Json = {}
        if self.endpoint.ca_file is not None:
            cluster["certificate-authority"] = str(self.endpoint.ca_file)
        if token_file is not None:
            user["tokenFile"] = str(token_file)
        elif self.endpoint.certificate_file is not None:
            user["client-certificate"] = str(self.endpoint.certificate_file)
            user["client-key"] = str(self.endpoint.key_file)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    # --- nodes and pods ------------------------------------------------------------------------------

    def add_nodes(self, *nodes: Json) -> None:
        """Create nodes and take the taint off that a new node has until it is marked ready."""
        for wanted in nodes:
            name = wanted["metadata"]["name"]
            self.api.create("nodes", wanted)
            self.api.patch("nodes", name, {"spec": {"taints": wanted["spec"].get("taints", [])}})

    def add_pods(self, *pods: Json) -> None:
        for wanted in pods:
            self.api.create("pods", wanted)

    def bind(self, name: str, to: str) -> None:
        """Bind a pod as another scheduler would."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": to},
        }
        self.api.request("POST", f"{self.api.path('pods', name)}/binding", body)

    def delete_pod(self, name: str) -> None:
        self.api.delete("pods", name)

    def pod(self, name: str, *, namespace: str = "default") -> Json:
        return self.api.get("pods", name, namespace=namespace)

    def pods(self) -> list[Json]:
        return [pod for namespace in self.namespaces for pod in self.api.list("pods", namespace=namespace)]

    def use_namespaces(self, *names: str) -> None:
        """Create namespaces, and look for pods there too."""
        for name in names:
            self.ensure("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.namespaces += names

    def placements(self) -> dict[str, str]:
        """Return the node of every pod, "" where it has none."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.pods()}

    def wait_bound(self, *names: str, within: float = PATIENCE_SECONDS) -> dict[str, str]:
        """Wait until these pods, or all, have a node; return them."""
        listed = self.api.request("GET", "/api/v1/pods")
        placed = {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in listed["items"]
            if pod["metadata"]["namespace"] in self.namespaces
        }

        def bound() -> bool:
            return bool(placed) and all(placed.get(name) for name in names or placed)

        after = listed["metadata"]["resourceVersion"]
        with closing(self.api.changes_of_pods(after=after, within=within)) as changes:
            while not bound():
                kind, pod = next(changes, ("", {}))
                if not kind:
                    raise AssertionError(f"not bound within {within:g} s\n{self._unbound(names)}")
                meta = pod["metadata"]
                if meta["namespace"] not in self.namespaces:
                    continue
                placed[meta["name"]] = pod["spec"].get("nodeName", "")
                if kind == "DELETED":
                    del placed[meta["name"]]
        return {name: placed[name] for name in names or placed}

    def _unbound(self, names: Iterable[str]) -> str:
        waiting = [p for p in self.pods() if not p["spec"].get("nodeName")]
        concerned = [p for p in waiting if not names or p["metadata"]["name"] in names]
        told = {p["metadata"]["name"]: p["status"].get("conditions") for p in concerned[:5]}
        return f"{len(concerned)} wait: {told}"

    def condition(self, name: str, kind: str = "PodScheduled", *, plural: str = "pods") -> Json:
        """Return a condition of a pod, or of another object, {} where it has none."""
        conditions = self.api.get(plural, name).get("status", {}).get("conditions", ())
        return next((c for c in conditions if c["type"] == kind), {})

    @property
    def has_pod_groups(self) -> bool:
        """Whether this API server has PodGroups: 1.36 and later with the feature gate GenericWorkload."""
        try:
            self.api.list("podgroups")
        except ApiRefusal as refusal:
            if refusal.code != 404:
                raise
            return False
        return True

    def events(self, about: str, *, reason: str | None = None, namespace: str = "default") -> list[Json]:
        """Return the events about an object, oldest first."""
        found = [
            event
            for event in self.api.list("events", namespace=namespace)
            if event["regarding"]["name"] == about and reason in (None, event["reason"])
        ]
        return sorted(found, key=lambda event: str(event.get("eventTime")))

    # --- the referee ---------------------------------------------------------------------------------

    def overcommitted(self) -> list[str]:
        """Count all requests per node again, from what the API server says; return what exceeds a node."""
        offered = {node["metadata"]["name"]: node["status"]["allocatable"] for node in self.api.list("nodes")}
        taken: dict[str, Counter[str]] = {name: Counter() for name in offered}
        for pod in self.pods():
            on = pod["spec"].get("nodeName")
            if on in taken and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                taken[on]["pods"] += 1
                for container in pod["spec"]["containers"]:
                    for resource, amount in container["resources"].get("requests", {}).items():
                        taken[on][resource] += amount_of(amount)  # type: ignore[assignment]
        return [
            f"{name}: {resource} {float(amount)} of {offered[name].get(resource, '0')}"
            for name, totals in taken.items()
            for resource, amount in totals.items()
            if amount > amount_of(offered[name].get(resource, "0"))
        ]

    def refused_by_kubelets(self) -> list[str]:
        """Return the pods that their node's kubelet would not run."""
        return [
            f"{pod['metadata']['name']}: {pod['status'].get('message')}"
            for pod in self.pods()
            if pod["status"].get("phase") == "Failed"
        ]

    def wipe(self) -> None:
        """Take away what a test may have left."""
        self.api.delete_all("validatingwebhookconfigurations")
        everywhere = self.api.request("GET", "/api/v1/pods")["items"]
        for namespace in sorted({pod["metadata"]["namespace"] for pod in everywhere}):
            self.api.delete_all("pods", namespace=namespace)
        for pod in self.pods():
            if pod["metadata"].get("finalizers"):
                self.api.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": None}})
        for plural in ("persistentvolumeclaims", "persistentvolumes"):
            for volume in self.api.list(plural):  # there is no controller that lets them go
                self.api.patch(plural, volume["metadata"]["name"], {"metadata": {"finalizers": None}})
        for plural in (
            "pods",
            "nodes",
            "events",
            "configmaps",
            "persistentvolumeclaims",
            "persistentvolumes",
            "storageclasses",
        ):
            self.api.delete_all(plural)
        for claim in self.api.list("resourceclaims"):  # nor one that deallocates
            self.api.patch("resourceclaims", claim["metadata"]["name"], {"metadata": {"finalizers": None}})
        for plural in ("resourceclaims", "resourceslices", "deviceclasses"):
            self.api.delete_all(plural)
        if self.has_pod_groups:
            for group in self.api.list("podgroups"):  # there is no controller that lets them go
                self.api.patch("podgroups", group["metadata"]["name"], {"metadata": {"finalizers": None}})
            self.api.delete_all("podgroups")
        if self._serves_scheduling_policies():
            for policy in self.api.request("GET", "/apis/policy-scheduler.dev/v1alpha1/schedulingpolicies")["items"]:
                self.api.delete(
                    "schedulingpolicies", policy["metadata"]["name"], namespace=policy["metadata"]["namespace"]
                )
        for namespace in ("kube-system", "policy-scheduler"):
            for plural in ("pods", "leases", "events", "configmaps", "controllerrevisions"):
                self.api.delete_all(plural, namespace=namespace)
        for plural in ("priorityclasses",):
            for thing in self.api.list(plural):
                if not thing["metadata"]["name"].startswith("system-"):
                    self.api.delete(plural, thing["metadata"]["name"])

    def add_scheduling_policies(self) -> None:
        """Have the API server serve SchedulingPolicies, if it does not do so already."""
        try:
            self.api.list("schedulingpolicies")
        except ApiRefusal:
            folder = Path(__file__).parents[2] / "deploy" / "components" / "scheduling-policies"
            self.ensure("customresourcedefinitions", yaml.safe_load((folder / "crd.yaml").read_text()))
            eventually(self._serves_scheduling_policies)

    def _serves_scheduling_policies(self) -> bool:
        try:
            self.api.list("schedulingpolicies")
        except ApiRefusal:
            return False
        return True

    def ensure(self, plural: str, thing: Json) -> None:
        """Create an object unless it is there."""
        try:
            self.api.create(plural, thing)
        except ApiRefusal as refusal:
            if refusal.code != 409:
                raise


class Embedded(Cluster):
    """An embedded cluster with TLS and RBAC, in a thread of the test's process."""

    has_kubelets = True

    def __init__(self, cluster: SecureCluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        ca_file = directory / "ca.crt"
        ca_file.write_bytes(cluster.certificate_authority)
        certificate, key = self.certificate("admin", group="system:masters")
        super().__init__(Endpoint(cluster.url, ca_file, certificate, key))

    def token(self, namespace: str, account: str) -> str:
        return self._cluster.tokens.issue(service_account(namespace, account))

    def certificate(self, user: str, *, group: str = "") -> tuple[Path, Path]:
        text = self._cluster.kubeconfig(user=User(user, (group,) if group else ()), certificate=True)
        inside = yaml.safe_load(text)["users"][0]["user"]
        files = self._directory / f"{user}.crt", self._directory / f"{user}.key"
        for file, field in zip(files, ("client-certificate-data", "client-key-data"), strict=True):
            file.write_bytes(base64.b64decode(inside[field]))
        return files


class Real(Cluster):
    """A real control plane, without kubelets and controllers."""

    has_kubelets = False

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        super().__init__(plane.endpoint)

    def token(self, namespace: str, account: str) -> str:
        thing = {"apiVersion": "v1", "kind": "ServiceAccount"}
        # there is no controller that makes the account `default`
        self.ensure("serviceaccounts", thing | {"metadata": {"name": account, "namespace": namespace}})
        path = f"{self.api.path('serviceaccounts', account, namespace=namespace)}/token"
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        request = kind | {"spec": {"expirationSeconds": 3600}}
        token: str = self.api.request("POST", path, request)["status"]["token"]
        return token

    def certificate(self, user: str, *, group: str = "") -> tuple[Path, Path]:
        return self._plane.certificate(user, group=group)

    def restart(self) -> None:
        """Kill the API server, and return when it serves again."""
        self._plane.restart_api_server()


def amount_of(text: str) -> Fraction:
    """Return a quantity's value, read by the referee's own lights."""
    digits = text.rstrip("mkKMGTi")
    return Fraction(digits) * _SUFFIXES[text[len(digits) :]]
