"""Roles and bindings every cluster begins with, as far as clients and schedulers need them."""

from __future__ import annotations

from collections.abc import Iterable

from kube_policy_scheduler.embedded.access.identity import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from kube_policy_scheduler.embedded.errors import Json

_API = "rbac.authorization.k8s.io/v1"
_READ = ["get", "list", "watch"]


def _role(name: str, *rules: Json) -> Json:
    return {"apiVersion": _API, "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}


def _rule(groups: Iterable[str], resources: Iterable[str], verbs: Iterable[str], **more: list[str]) -> Json:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs), **more}


def _binding(name: str, role: str, *subjects: tuple[str, str]) -> Json:
    return {
        "apiVersion": _API,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject} for kind, subject in subjects
        ],
    }


_DISCOVERY = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
_HEALTH = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_SCHEDULER_READS = {
    "": [
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "replicationcontrollers",
        "services",
    ],
    "apps": ["replicasets", "statefulsets"],
    "policy": ["poddisruptionbudgets"],
    "resource.k8s.io": ["deviceclasses", "resourceclaims", "resourceslices"],
    "storage.k8s.io": ["csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"],
}

OBJECTS: tuple[Json, ...] = (
    _role("cluster-admin", _rule(["*"], ["*"], ["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}),
    _role("system:discovery", {"nonResourceURLs": [*_DISCOVERY, *_HEALTH], "verbs": ["get"]}),
    _role("system:public-info-viewer", {"nonResourceURLs": _HEALTH, "verbs": ["get"]}),
    _role(
        "system:basic-user",
        _rule(["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
        _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
    ),
    _role(
        "system:auth-delegator",
        _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        _rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ),
    _role(
        "system:kube-scheduler",
        *(_rule([group], resources, _READ) for group, resources in _SCHEDULER_READS.items()),
        _rule(["", "events.k8s.io"], ["events"], ["create", "patch", "update"]),
        _rule([""], ["pods"], ["delete"]),
        _rule([""], ["bindings", "pods/binding"], ["create"]),
        _rule([""], ["pods/status"], ["patch", "update"]),
        _rule(["coordination.k8s.io"], ["leases"], ["create"]),
        _rule(["coordination.k8s.io"], ["leases"], [*_READ, "update"], resourceNames=["kube-scheduler"]),
        _rule([""], ["persistentvolumeclaims", "persistentvolumes"], ["patch", "update"]),
    ),
    _binding("cluster-admin", "cluster-admin", ("Group", MASTERS)),
    _binding("system:discovery", "system:discovery", ("Group", AUTHENTICATED)),
    _binding("system:basic-user", "system:basic-user", ("Group", AUTHENTICATED)),
    _binding(
        "system:public-info-viewer", "system:public-info-viewer", ("Group", AUTHENTICATED), ("Group", UNAUTHENTICATED)
    ),
    _binding("system:kube-scheduler", "system:kube-scheduler", ("User", "system:kube-scheduler")),
)
