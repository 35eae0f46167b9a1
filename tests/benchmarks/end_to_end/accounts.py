"""Who the schedulers are to a real API server: service accounts with the roles of their deployment, and their tokens.

A token is bound to a pod, as those that a kubelet projects, and so has their size: about 1 kB. The API server verifies
it and asks RBAC for every request. With the administrator's certificate it would do neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from tests.benchmarks.manifests import Json
from tests.integration.cluster import Real

NAMESPACE = "kube-system"
ACCOUNTS = {"ours": "policy-scheduler", "kube": "kube-scheduler"}
"""The service account of each scheduler."""
PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}
DEPLOYED = Path(__file__).parents[3] / "deploy" / "base"
LIFETIME_SECONDS = 3607
"""As the kubelet asks for it."""
RBAC = "rbac.authorization.k8s.io"


def account_kubeconfigs(cluster: Real, folder: Path) -> Mapping[str, Path]:
    """Create the accounts; return the kubeconfig of each scheduler, which reads its token from a file."""
    for thing in (*_roles_of_ours(), *_roles_of_kube_scheduler()):
        cluster.ensure(PLURALS[thing["kind"]], thing)
    found = {}
    for kind, account in ACCOUNTS.items():
        cluster.ensure("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount"} | _named(account))
        token = folder / f"{account}.token"
        token.write_text(_projected_token(cluster, account))
        found[kind] = cluster.kubeconfig(folder / f"{account}.kubeconfig", token_file=token)
    return found


def _named(name: str) -> Json:
    return {"metadata": {"name": name, "namespace": NAMESPACE}}


def _roles_of_ours() -> Iterator[Json]:
    """Yield what deploy/base grants, in the namespace in which leases are without a pod around the scheduler."""
    for file in ("cluster-role.yaml", "role.yaml"):
        for thing in yaml.safe_load_all((DEPLOYED / file).read_text(encoding="utf-8")):
            if "namespace" in thing["metadata"]:
                thing["metadata"]["namespace"] = NAMESPACE
            for subject in thing.get("subjects", ()):
                subject["namespace"] = NAMESPACE
            yield thing


def _roles_of_kube_scheduler() -> Iterator[Json]:
    """Yield bindings to the roles that every API server has for it; others have its user, not an account."""
    account = ACCOUNTS["kube"]
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        yield {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"benchmark:{role}"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        }
    for role in ("extension-apiserver-authentication-reader", "system::leader-locking-kube-scheduler"):
        yield {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": role},
            "subjects": subjects,
        } | _named(f"benchmark:{role}")


def _projected_token(cluster: Real, account: str) -> str:
    """Return a token that is valid as long as a pod of the account exists, which takes nothing of any node."""
    name = f"{account}-control-plane"
    spec = {
        "serviceAccountName": account,
        "nodeName": "control-plane",  # which nobody creates: the pod takes no room
        "containers": [{"name": account, "image": f"registry.example.com/{account}:bench"}],
    }
    pod = cluster.api.create("pods", {"apiVersion": "v1", "kind": "Pod", "spec": spec} | _named(name))
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
    asked = {"expirationSeconds": LIFETIME_SECONDS, "boundObjectRef": bound}
    path = f"{cluster.api.path('serviceaccounts', account, namespace=NAMESPACE)}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": asked}
    token: str = cluster.api.request("POST", path, request)["status"]["token"]
    return token
