"""The kinds the embedded cluster serves, as one table. Adding a kind is adding a line to it.

What is not the same in all versions of Kubernetes says since and until when; a `Catalog` is what one version serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from kube_policy_scheduler.kubernetes_rules import KubernetesVersion

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class SelectableField:
    """A field that list and watch can select by: its label, and where the stored object has it."""

    label: str
    path: tuple[str, ...]
    default: str = ""

    def value(self, obj: Mapping[str, Any]) -> str:
        """Return the field's value as the text selectors compare with."""
        at: Any = obj
        for key in self.path:
            if not isinstance(at, dict) or key not in at:
                return self.default
            at = at[key]
        match at:
            case bool():
                return "true" if at else "false"
            case None:
                return self.default
            case _:
                return str(at)


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of one API group version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: tuple[SelectableField, ...] = ()
    storage: str = ""
    """Key of the collection in the store; two resources with one key are two views of the same objects."""
    stored_as: str = ""
    """The API version that the objects have in the store; "": the resource's own."""
    counts_generation: bool = False
    """Whether `metadata.generation` counts changes of `spec`."""
    status_on_create: bool = False
    """Whether a client may give `status` when it creates the object."""
    verbs: tuple[str, ...] = _VERBS
    since: int = 0
    """The first minor version of Kubernetes that serves it."""
    before: int | None = None
    """The first minor version that does not serve it any more."""
    singular: str = ""
    positions: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def api_version(self) -> str:
        """Return `v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored_api_version(self) -> str:
        """Return the API version that the objects have in the store."""
        return self.stored_as or self.api_version

    @property
    def storage_key(self) -> str:
        """Return the name of the collection that holds the objects."""
        return self.storage or (f"{self.group}/{self.plural}" if self.group else self.plural)

    @property
    def has_status(self) -> bool:
        """Whether status is a subresource, and so apart from the rest."""
        return "status" in self.subresources

    def is_served_by(self, version: KubernetesVersion) -> bool:
        """Return whether a version of Kubernetes serves it."""
        return self.since <= version.minor and (self.before is None or version.minor < self.before)

    def row(self, obj: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the values selectors compare with: name, namespace, then the kind's own fields."""
        meta = obj["metadata"]
        return (meta["name"], meta.get("namespace") or "", *(item.value(obj) for item in self.fields))


def _fields(*labels: str, **defaults: str) -> tuple[SelectableField, ...]:
    return tuple(
        SelectableField(label, tuple(label.split(".")), defaults.get(label.replace(".", "_"), "")) for label in labels
    )


def _renamed(pairs: Mapping[str, str]) -> tuple[SelectableField, ...]:
    return tuple(SelectableField(label, tuple(path.split("."))) for label, path in pairs.items())


_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_COMMON = {"reason": "reason", "type": "type"}
_CORE_EVENT = _renamed(
    {
        **{f"involvedObject.{key}": f"involvedObject.{key}" for key in _REFERENCE},
        **_EVENT_COMMON,
        "reportingComponent": "reportingComponent",
        "source": "source.component",
    }
)
_NEW_EVENT = _renamed(  # in the order of _CORE_EVENT, as both are read from one stored row
    {
        **{f"regarding.{key}": f"involvedObject.{key}" for key in _REFERENCE},
        **_EVENT_COMMON,
        "reportingController": "reportingComponent",
    }
)
_POD_FIELDS = _fields(
    "spec.nodeName",
    "spec.schedulerName",
    "status.phase",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.podIP",
    "status.nominatedNodeName",
    spec_hostNetwork="false",
)


def _core(plural: str, kind: str, **more: Any) -> Resource:
    return Resource("", "v1", plural, kind, **more)


def _apps(plural: str, kind: str, short: str, **more: Any) -> Resource:
    return Resource(
        "apps", "v1", plural, kind, short_names=(short,), categories=("all",), counts_generation=True, **more
    )


def _cluster(group: str, plural: str, kind: str, **more: Any) -> Resource:
    return Resource(group, "v1", plural, kind, namespaced=False, **more)


def _groups(version: str, plural: str, kind: str, **more: Any) -> Resource:
    return Resource("scheduling.k8s.io", version, plural, kind, subresources=_STATUS, counts_generation=True, **more)


def _bindings(plural: str, kind: str, **more: Any) -> Resource:
    """Return a resource of Karmada: the embedded cluster can stand in for its control plane."""
    return Resource("work.karmada.io", "v1alpha2", plural, kind, subresources=_STATUS, counts_generation=True, **more)


def _kueue(plural: str, kind: str, **more: Any) -> Resource:
    """Return a resource of Kueue: the embedded cluster can stand in for a manager cluster of MultiKueue."""
    return Resource("kueue.x-k8s.io", "v1beta2", plural, kind, subresources=_STATUS, counts_generation=True, **more)


def _ocm(version: str, plural: str, kind: str, **more: Any) -> Resource:
    """Return a resource of Open Cluster Management: the embedded cluster can stand in for a hub."""
    group = "cluster.open-cluster-management.io"
    return Resource(group, version, plural, kind, subresources=_STATUS, counts_generation=True, **more)


def _workloads(version: str, **more: Any) -> Resource:
    return Resource("scheduling.k8s.io", version, "workloads", "Workload", counts_generation=True, **more)


_STATUS = ("status",)
_SCALE = ("scale", "status")
_DRA = "resource.k8s.io"
_STORAGE = "storage.k8s.io"
_RBAC = "rbac.authorization.k8s.io"

_TABLE = (
    _core("bindings", "Binding", verbs=("create",)),
    _core("configmaps", "ConfigMap", short_names=("cm",)),
    _core("endpoints", "Endpoints", short_names=("ep",)),
    _core("events", "Event", short_names=("ev",), fields=_CORE_EVENT, storage="events"),
    _core("limitranges", "LimitRange", short_names=("limits",)),
    _core(
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=("finalize", "status"),
        fields=_fields("status.phase"),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    _core(
        "nodes",
        "Node",
        namespaced=False,
        short_names=("no",),
        subresources=_STATUS,
        fields=_fields("spec.unschedulable", spec_unschedulable="false"),
        status_on_create=True,
    ),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=_STATUS),
    _core("persistentvolumes", "PersistentVolume", namespaced=False, short_names=("pv",), subresources=_STATUS),
    _core(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=("binding", "ephemeralcontainers", "eviction", "log", "resize", "status"),
        fields=_POD_FIELDS,
        counts_generation=True,
    ),
    _core("podtemplates", "PodTemplate"),
    _core(
        "replicationcontrollers",
        "ReplicationController",
        short_names=("rc",),
        categories=("all",),
        subresources=_SCALE,
        fields=_fields("status.replicas", status_replicas="0"),
        counts_generation=True,
    ),
    _core("resourcequotas", "ResourceQuota", short_names=("quota",), subresources=_STATUS),
    _core("secrets", "Secret", fields=_fields("type")),
    _core("serviceaccounts", "ServiceAccount", short_names=("sa",), subresources=("token",)),
    _core("services", "Service", short_names=("svc",), categories=("all",), subresources=_STATUS),
    _cluster("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    _cluster("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    _cluster("admissionregistration.k8s.io", "mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
    _cluster("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
    _cluster("admissionregistration.k8s.io", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    _cluster("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    _apps("controllerrevisions", "ControllerRevision", ""),
    _apps("daemonsets", "DaemonSet", "ds", subresources=_STATUS),
    _apps("deployments", "Deployment", "deploy", subresources=_SCALE),
    _apps(
        "replicasets",
        "ReplicaSet",
        "rs",
        subresources=_SCALE,
        fields=_fields("status.replicas", status_replicas="0"),
    ),
    _apps("statefulsets", "StatefulSet", "sts", subresources=_SCALE),
    Resource(
        "authentication.k8s.io",
        "v1",
        "selfsubjectreviews",
        "SelfSubjectReview",
        namespaced=False,
        verbs=("create",),
    ),
    Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False, verbs=("create",)),
    Resource("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", verbs=("create",)),
    _cluster("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", verbs=("create",)),
    _cluster("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", verbs=("create",)),
    _cluster("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", verbs=("create",)),
    Resource("batch", "v1", "cronjobs", "CronJob", short_names=("cj",), categories=("all",), subresources=_STATUS),
    Resource(
        "batch",
        "v1",
        "jobs",
        "Job",
        categories=("all",),
        subresources=_STATUS,
        fields=_fields("status.successful", status_successful="0"),
        counts_generation=True,
    ),
    Resource(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        short_names=("hpa",),
        categories=("all",),
        subresources=_STATUS,
    ),
    Resource("coordination.k8s.io", "v1", "leases", "Lease"),
    Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    _cluster("networking.k8s.io", "ingressclasses", "IngressClass", counts_generation=True),
    Resource(
        "networking.k8s.io",
        "v1",
        "ingresses",
        "Ingress",
        short_names=("ing",),
        subresources=_STATUS,
        counts_generation=True,
    ),
    Resource(
        "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",), counts_generation=True
    ),
    _cluster("node.k8s.io", "runtimeclasses", "RuntimeClass"),
    Resource(
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        short_names=("ev",),
        fields=_NEW_EVENT,
        storage="events",
        stored_as="v1",
    ),
    Resource(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short_names=("pdb",),
        subresources=_STATUS,
        counts_generation=True,
    ),
    _cluster(_RBAC, "clusterrolebindings", "ClusterRoleBinding"),
    _cluster(_RBAC, "clusterroles", "ClusterRole"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Resource(_RBAC, "v1", "roles", "Role"),
    _cluster(_DRA, "deviceclasses", "DeviceClass", counts_generation=True),
    _cluster(_DRA, "devicetaintrules", "DeviceTaintRule", subresources=_STATUS, counts_generation=True, since=37),
    Resource(_DRA, "v1", "resourceclaims", "ResourceClaim", subresources=_STATUS),
    Resource(_DRA, "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    _cluster(
        _DRA, "resourceslices", "ResourceSlice", fields=_fields("spec.nodeName", "spec.driver"), counts_generation=True
    ),
    _workloads("v1alpha2", before=37),
    _groups("v1alpha2", "podgroups", "PodGroup", before=37),
    _workloads("v1beta1", since=37),
    _groups("v1beta1", "podgroups", "PodGroup", since=37),
    _workloads("v1alpha3", since=37, stored_as="scheduling.k8s.io/v1beta1"),
    _groups("v1alpha3", "podgroups", "PodGroup", since=37, stored_as="scheduling.k8s.io/v1beta1"),
    _groups("v1alpha3", "compositepodgroups", "CompositePodGroup", since=37),
    Resource(
        "policy-scheduler.dev",
        "v1alpha1",
        "schedulingpolicies",
        "SchedulingPolicy",
        short_names=("spol",),
        subresources=_STATUS,
        counts_generation=True,
    ),
    Resource(
        "cluster.karmada.io",
        "v1alpha1",
        "clusters",
        "Cluster",
        namespaced=False,
        subresources=_STATUS,
        counts_generation=True,
    ),
    _bindings("resourcebindings", "ResourceBinding", short_names=("rb",)),
    _bindings("clusterresourcebindings", "ClusterResourceBinding", namespaced=False, short_names=("crb",)),
    _ocm("v1", "managedclusters", "ManagedCluster", namespaced=False),
    _ocm("v1alpha1", "addonplacementscores", "AddOnPlacementScore"),
    _ocm("v1beta2", "managedclustersets", "ManagedClusterSet", namespaced=False),
    _ocm("v1beta2", "managedclustersetbindings", "ManagedClusterSetBinding"),
    _ocm("v1beta1", "placements", "Placement"),
    _ocm("v1beta1", "placementdecisions", "PlacementDecision"),
    Resource(
        "multicluster.x-k8s.io",
        "v1alpha1",
        "clusterprofiles",
        "ClusterProfile",
        subresources=_STATUS,
        counts_generation=True,
    ),
    Resource("multicluster.x-k8s.io", "v1alpha1", "placementdecisions", "PlacementDecision"),
    _kueue("admissionchecks", "AdmissionCheck", namespaced=False),
    _kueue("multikueueclusters", "MultiKueueCluster", namespaced=False),
    _kueue("multikueueconfigs", "MultiKueueConfig", namespaced=False),
    _kueue("workloads", "Workload", short_names=("wl",)),
    _cluster("scheduling.k8s.io", "priorityclasses", "PriorityClass", short_names=("pc",), counts_generation=True),
    _cluster(_STORAGE, "csidrivers", "CSIDriver"),
    _cluster(_STORAGE, "csinodes", "CSINode"),
    Resource(_STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity"),
    _cluster(_STORAGE, "storageclasses", "StorageClass", short_names=("sc",)),
    _cluster(_STORAGE, "volumeattributesclasses", "VolumeAttributesClass", short_names=("vac",)),
    _cluster(_STORAGE, "volumeattachments", "VolumeAttachment", subresources=_STATUS),
)


def _completed(resource: Resource) -> Resource:
    positions = {"metadata.name": 0, "metadata.namespace": 1}
    if resource.plural == "namespaces":
        positions["name"] = 0
    positions |= {item.label: at for at, item in enumerate(resource.fields, start=2)}
    names = {name: getattr(resource, name) for name in Resource.__slots__}
    names |= {
        "positions": MappingProxyType(positions),
        "singular": resource.singular or resource.kind.lower(),
        "short_names": tuple(name for name in resource.short_names if name),
    }
    return Resource(**names)


RESOURCES: tuple[Resource, ...] = tuple(_completed(resource) for resource in _TABLE)
"""Of all versions."""
_BY_PLURAL = {(resource.group, resource.version, resource.plural): resource for resource in RESOURCES}
DEFAULT_VERSION = KubernetesVersion(36, 2)


class Catalog:
    """What the API server of one version of Kubernetes serves. Immutable; one object for each version: `catalog`."""

    def __init__(self, version: KubernetesVersion) -> None:
        self.version = version
        self.resources = tuple(resource for resource in RESOURCES if resource.is_served_by(version))
        self.by_plural: Mapping[tuple[str, str, str], Resource] = MappingProxyType(
            {(resource.group, resource.version, resource.plural): resource for resource in self.resources}
        )
        self.by_kind: Mapping[tuple[str, str], Resource] = MappingProxyType(
            {(resource.api_version, resource.kind): resource for resource in self.resources}
        )
        self.by_storage: Mapping[str, Resource] = MappingProxyType(
            {resource.storage_key: resource for resource in reversed(self.resources)}
        )

    @property
    def git_version(self) -> str:
        """Return the version as servers and nodes say it, such as `v1.36.2`."""
        return f"v1.{self.version.minor}.{self.version.patch or 0}"


@lru_cache(maxsize=16)
def catalog(version: KubernetesVersion = DEFAULT_VERSION) -> Catalog:
    """Return what a version of Kubernetes serves."""
    return Catalog(version)


def resource(plural: str, *, group: str = "", version: str = "v1") -> Resource:
    """Return a resource that is known to exist.

    Raises:
        KeyError: the resource does not exist.
    """
    return _BY_PLURAL[group, version, plural]
