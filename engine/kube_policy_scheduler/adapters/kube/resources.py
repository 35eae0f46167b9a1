"""The API resources that the scheduler knows, in one table: paths, types, and which parts read them."""

from __future__ import annotations

import re
from collections import Counter
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from kube_policy_scheduler.cluster import objects


class HasMetadata(Protocol):
    """What the reflector asks of an object's struct."""

    metadata: objects.ObjectMeta

    def __init__(self, *, metadata: objects.ObjectMeta) -> None: ...


T = TypeVar("T", bound=HasMetadata)


class Read(Enum):
    """Which part reads all objects of a resource; a cluster without the resource has no such objects."""

    FIRST = "first"
    """The daemon watches it, and commands list it; nothing is decided without it."""
    BY_RULES = "by rules"
    """The daemon watches it, and commands list it: filters and scores look at it."""
    WHERE_SERVED = "where served"
    """As `BY_RULES`; but few clusters have it, and those without it may forbid to ask: discovery is asked first."""
    BY_COMMANDS = "by commands"
    """Commands list it."""


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """One resource of the API; group "" is the core group."""

    plural: str
    type: type[T]
    group: str = ""
    version: str = "v1"
    read: Read = Read.BY_RULES
    version_differs: bool = False
    """It is alpha: each Kubernetes may serve it in another version."""

    @property
    def root(self) -> str:
        """Path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def collection(self, *, namespace: str | None = None, query: dict[str, str] | None = None) -> str:
        """Path of all its objects, of all namespaces without one."""
        inside = ""
        if namespace:
            inside = f"/namespaces/{namespace if _is_plain(namespace) else quote(namespace, safe='')}"
        asked = f"?{urlencode(query)}" if query else ""
        return f"{self.root}{inside}/{self.plural}{asked}"

    def path(self, name: str, *, namespace: str = "", subresource: str = "") -> str:
        """Path of one object, or of its subresource."""
        tail = f"/{subresource}" if subresource else ""
        return f"{self.collection(namespace=namespace)}/{name if _is_plain(name) else quote(name, safe='')}{tail}"

    @property
    def label(self) -> str:
        """Its plural, for metrics and messages; with the group, as kubectl writes it, if another group has one too."""
        return str(self) if self.plural in _IN_SEVERAL_GROUPS else self.plural

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


_is_plain = re.compile(r"[A-Za-z0-9._~-]*").fullmatch
"""Whether nothing in a part of a path is to be escaped, as in names of the API: `quote` needs ten times as long."""

UNFINISHED_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector: a pod that turns terminal arrives as DELETED, because it consumes nothing any more."""

NODES = Resource("nodes", objects.Node, read=Read.FIRST)
PODS = Resource("pods", objects.Pod, read=Read.FIRST)
PERSISTENT_VOLUMES = Resource("persistentvolumes", objects.PersistentVolume)
PERSISTENT_VOLUME_CLAIMS = Resource("persistentvolumeclaims", objects.PersistentVolumeClaim)
STORAGE_CLASSES = Resource("storageclasses", objects.StorageClass, "storage.k8s.io")
RESOURCE_CLAIMS = Resource("resourceclaims", objects.ResourceClaim, "resource.k8s.io")
POD_GROUPS = Resource(
    "podgroups", objects.PodGroup, "scheduling.k8s.io", "v1alpha2", Read.WHERE_SERVED, version_differs=True
)
COMPOSITE_POD_GROUPS = Resource(
    "compositepodgroups",
    objects.CompositePodGroup,
    "scheduling.k8s.io",
    "v1alpha3",
    Read.WHERE_SERVED,
    version_differs=True,
)

RESOURCES: tuple[Resource[Any], ...] = (
    NODES,
    PODS,
    Resource("namespaces", objects.Namespace),
    Resource("services", objects.Service),
    Resource("replicationcontrollers", objects.ReplicationController),
    Resource("replicasets", objects.ReplicaSet, "apps"),
    Resource("statefulsets", objects.StatefulSet, "apps"),
    Resource("poddisruptionbudgets", objects.PodDisruptionBudget, "policy"),
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE_CLASSES,
    Resource("csinodes", objects.CSINode, "storage.k8s.io"),
    Resource("csidrivers", objects.CSIDriver, "storage.k8s.io"),
    Resource("csistoragecapacities", objects.CSIStorageCapacity, "storage.k8s.io"),
    Resource("volumeattachments", objects.VolumeAttachment, "storage.k8s.io"),
    Resource("deviceclasses", objects.DeviceClass, "resource.k8s.io"),
    Resource("resourceslices", objects.ResourceSlice, "resource.k8s.io"),
    Resource("devicetaintrules", objects.DeviceTaintRule, "resource.k8s.io", read=Read.WHERE_SERVED),
    RESOURCE_CLAIMS,
    Resource("priorityclasses", objects.PriorityClass, "scheduling.k8s.io", read=Read.BY_COMMANDS),
    Resource("resourceclaimtemplates", objects.ResourceClaimTemplate, "resource.k8s.io", read=Read.BY_COMMANDS),
    POD_GROUPS,
    COMPOSITE_POD_GROUPS,
    Resource("podgroups", objects.CoschedulingPodGroup, "scheduling.x-k8s.io", "v1alpha1", Read.WHERE_SERVED),
    Resource(
        "noderesourcetopologies",
        objects.NodeResourceTopology,
        "topology.node.k8s.io",
        "v1alpha2",
        Read.WHERE_SERVED,
    ),
)
"""All, in the order in which they are read."""
_IN_SEVERAL_GROUPS = frozenset(
    plural for plural, count in Counter(resource.plural for resource in RESOURCES).items() if count > 1
)
"""A cluster may serve them all: series and messages that name only the plural could not be told apart."""
WATCHED = tuple(resource for resource in RESOURCES if resource.read is not Read.BY_COMMANDS)
"""Those that the daemon watches, nodes and pods first."""
