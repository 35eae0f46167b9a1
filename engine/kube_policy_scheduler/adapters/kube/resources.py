"""Which API resources there are and where: group, version, plural, and the struct its objects decode into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

from kube_policy_scheduler.cluster import objects


class HasMetadata(Protocol):
    """What the reflector asks of an object's struct."""

    metadata: objects.ObjectMeta

    def __init__(self, *, metadata: objects.ObjectMeta) -> None: ...


T = TypeVar("T", bound=HasMetadata)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One resource of the API; group "" is the core group."""

    plural: str
    type: type[T]
    group: str = ""
    version: str = "v1"

    @property
    def root(self) -> str:
        """Path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def collection(self, *, namespace: str | None = None, query: dict[str, str] | None = None) -> str:
        """Path of all its objects, of all namespaces without one."""
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        asked = f"?{urlencode(query)}" if query else ""
        return f"{self.root}{inside}/{self.plural}{asked}"

    def path(self, name: str, *, namespace: str = "", subresource: str = "") -> str:
        """Path of one object, or of its subresource."""
        tail = f"/{subresource}" if subresource else ""
        return f"{self.collection(namespace=namespace)}/{quote(name, safe='')}{tail}"

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


UNFINISHED_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector: a pod that turns terminal arrives as DELETED, because it consumes nothing any more."""

PODS = Resource("pods", objects.Pod)
NODES = Resource("nodes", objects.Node)
NAMESPACES = Resource("namespaces", objects.Namespace)
SERVICES = Resource("services", objects.Service)
REPLICATION_CONTROLLERS = Resource("replicationcontrollers", objects.ReplicationController)
REPLICA_SETS = Resource("replicasets", objects.ReplicaSet, "apps")
STATEFUL_SETS = Resource("statefulsets", objects.StatefulSet, "apps")
POD_DISRUPTION_BUDGETS = Resource("poddisruptionbudgets", objects.PodDisruptionBudget, "policy")
PRIORITY_CLASSES = Resource("priorityclasses", objects.PriorityClass, "scheduling.k8s.io")
PERSISTENT_VOLUMES = Resource("persistentvolumes", objects.PersistentVolume)
PERSISTENT_VOLUME_CLAIMS = Resource("persistentvolumeclaims", objects.PersistentVolumeClaim)
STORAGE_CLASSES = Resource("storageclasses", objects.StorageClass, "storage.k8s.io")
CSI_NODES = Resource("csinodes", objects.CSINode, "storage.k8s.io")
CSI_DRIVERS = Resource("csidrivers", objects.CSIDriver, "storage.k8s.io")
CSI_STORAGE_CAPACITIES = Resource("csistoragecapacities", objects.CSIStorageCapacity, "storage.k8s.io")
VOLUME_ATTACHMENTS = Resource("volumeattachments", objects.VolumeAttachment, "storage.k8s.io")
DEVICE_CLASSES = Resource("deviceclasses", objects.DeviceClass, "resource.k8s.io")
RESOURCE_SLICES = Resource("resourceslices", objects.ResourceSlice, "resource.k8s.io")
RESOURCE_CLAIMS = Resource("resourceclaims", objects.ResourceClaim, "resource.k8s.io")
RESOURCE_CLAIM_TEMPLATES = Resource("resourceclaimtemplates", objects.ResourceClaimTemplate, "resource.k8s.io")
POD_GROUPS = Resource("podgroups", objects.PodGroup, "scheduling.k8s.io", "v1alpha2")
COSCHEDULING_POD_GROUPS = Resource("podgroups", objects.CoschedulingPodGroup, "scheduling.x-k8s.io", "v1alpha1")

READ_BY_RULES: tuple[Resource[Any], ...] = (
    NAMESPACES,
    SERVICES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    STATEFUL_SETS,
    POD_DISRUPTION_BUDGETS,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    VOLUME_ATTACHMENTS,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    RESOURCE_CLAIMS,
)
"""Beside nodes and pods: what filters and scores look at. A cluster without one of them has no such objects."""
