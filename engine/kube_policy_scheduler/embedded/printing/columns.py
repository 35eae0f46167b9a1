"""The columns kubectl shows for each kind, as one table of names and cell functions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.printing import cells, kind_cells, pod_cells
from kube_policy_scheduler.embedded.printing.cells import NONE, UNKNOWN, UNSET, at
from kube_policy_scheduler.embedded.printing.kind_cells import Cell


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, what it shows, and whether only `-o wide` shows it."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    wide: bool = False

    def definition(self) -> Json:
        """Return the column as a table declares it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": int(self.wide),
        }


def _path(*path: str | int, default: Any = "") -> Cell:
    return lambda obj, now: at(obj, *path, default=default)


def _text(name: str, *path: str | int, default: Any = "", wide: bool = False) -> Column:
    return Column(name, _path(*path, default=default), wide=wide)


def _number(name: str, *path: str | int, default: int = 0) -> Column:
    return Column(name, _path(*path, default=default), type="integer")


def _truth(name: str, *path: str | int, default: bool = False) -> Column:
    return Column(name, _path(*path, default=default), type="boolean")


def _info(name: str, key: str) -> Column:
    return Column(name, lambda node, now: at(node, "status", "nodeInfo", key) or UNKNOWN, wide=True)


_NAME = Column("Name", _path("metadata", "name"), format="name")
_AGE = Column("Age", cells.age)
_CREATED = Column("Created At", _path("metadata", "creationTimestamp"), type="date")
_TEMPLATE = (
    Column("Containers", lambda obj, now: cells.names(cells.template_containers(obj)), wide=True),
    Column("Images", lambda obj, now: cells.images(cells.template_containers(obj)), wide=True),
)
_SELECTOR = Column("Selector", lambda obj, now: cells.label_selector(at(obj, "spec", "selector")), wide=True)
_MAP_SELECTOR = Column("Selector", lambda obj, now: cells.labels(at(obj, "spec", "selector")), wide=True)


_SUBJECTS = (
    Column("Users", kind_cells.subjects("User"), wide=True),
    Column("Groups", kind_cells.subjects("Group"), wide=True),
    Column("ServiceAccounts", kind_cells.subjects("ServiceAccount"), wide=True),
)
_MODES = "volumeLifecycleModes"
_EVENT = (
    Column("Last Seen", lambda event, now: kind_cells.event_times(event, now)[1]),
    _text("Type", "type"),
    _text("Reason", "reason"),
    Column("Object", kind_cells.event_object),
    _text("Subobject", "involvedObject", "fieldPath", wide=True),
    Column("Source", kind_cells.event_source, wide=True),
    Column("Message", lambda event, now: str(event.get("message") or "").strip()),
    Column("First Seen", lambda event, now: kind_cells.event_times(event, now)[0], wide=True),
    Column("Count", lambda e, now: at(e, "series", "count") or e.get("count") or 1, wide=True),
    Column("Name", _path("metadata", "name"), format="name", wide=True),
)
_REPLICAS = (
    _number("Desired", "spec", "replicas"),
    _number("Current", "status", "replicas"),
    _number("Ready", "status", "readyReplicas"),
)
DEFAULT: tuple[Column, ...] = (_NAME, _CREATED)
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "ClusterRoleBinding": (_NAME, Column("Role", kind_cells.role), _AGE, *_SUBJECTS),
    "ConfigMap": (
        _NAME,
        Column("Data", lambda obj, now: len(obj.get("data") or {}) + len(obj.get("binaryData") or {})),
        _AGE,
    ),
    "CSIDriver": (
        _NAME,
        _truth("AttachRequired", "spec", "attachRequired", default=True),
        _truth("PodInfoOnMount", "spec", "podInfoOnMount"),
        _truth("StorageCapacity", "spec", "storageCapacity"),
        _text("TokenRequests", "spec", "tokenRequests", default=UNSET),
        _truth("RequiresRepublish", "spec", "requiresRepublish"),
        Column("Modes", lambda obj, now: cells.joined(at(obj, "spec", _MODES, default=[]))),
        _AGE,
    ),
    "CSINode": (
        _NAME,
        Column("Drivers", lambda obj, now: len(at(obj, "spec", "drivers", default=[])), type="integer"),
        _AGE,
    ),
    "CronJob": (
        _NAME,
        _text("Schedule", "spec", "schedule"),
        _text("Timezone", "spec", "timeZone", default=NONE),
        _truth("Suspend", "spec", "suspend"),
        Column("Active", lambda obj, now: len(at(obj, "status", "active", default=[])), type="integer"),
        _text("Last Schedule", "status", "lastScheduleTime", default=NONE),
        _AGE,
    ),
    "DaemonSet": (
        _NAME,
        _number("Desired", "status", "desiredNumberScheduled"),
        _number("Current", "status", "currentNumberScheduled"),
        _number("Ready", "status", "numberReady"),
        _number("Up-to-date", "status", "updatedNumberScheduled"),
        _number("Available", "status", "numberAvailable"),
        Column("Node Selector", lambda o, now: cells.labels(at(o, "spec", "template", "spec", "nodeSelector"))),
        _AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "Deployment": (
        _NAME,
        Column("Ready", kind_cells.ready_of_desired),
        Column("Up-to-date", _path("status", "updatedReplicas", default=0)),
        Column("Available", _path("status", "availableReplicas", default=0)),
        _AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "DeviceClass": (_NAME, _AGE),
    "Event": _EVENT,
    "Job": (
        _NAME,
        Column("Status", kind_cells.job_status),
        Column(
            "Completions",
            lambda j, now: f"{at(j, 'status', 'succeeded', default=0)}/{at(j, 'spec', 'completions', default=1)}",
        ),
        Column("Duration", kind_cells.job_duration),
        _AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "Lease": (_NAME, _text("Holder", "spec", "holderIdentity"), _AGE),
    "Namespace": (_NAME, _text("Status", "status", "phase"), _AGE),
    "Node": (
        _NAME,
        Column("Status", kind_cells.node_status),
        Column("Roles", kind_cells.node_roles),
        _AGE,
        _text("Version", "status", "nodeInfo", "kubeletVersion"),
        Column("Internal-IP", kind_cells.address("InternalIP"), wide=True),
        Column("External-IP", kind_cells.address("ExternalIP"), wide=True),
        _info("OS-Image", "osImage"),
        Column("Kernel-Version", kind_cells.kernel, wide=True),
        _info("Container-Runtime", "containerRuntimeVersion"),
    ),
    "PersistentVolume": (
        _NAME,
        _text("Capacity", "spec", "capacity", "storage", default="0"),
        Column("Access Modes", lambda obj, now: cells.access_modes(at(obj, "spec", "accessModes"))),
        _text("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
        Column("Status", kind_cells.phase),
        Column("Claim", kind_cells.claim),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=UNSET),
        _text("Reason", "status", "reason"),
        _AGE,
        _text("VolumeMode", "spec", "volumeMode", default=UNSET, wide=True),
    ),
    "PersistentVolumeClaim": (
        _NAME,
        Column("Status", kind_cells.phase),
        _text("Volume", "spec", "volumeName"),
        Column("Capacity", kind_cells.of_bound_claim(_path("status", "capacity", "storage", default="0"))),
        Column(
            "Access Modes", kind_cells.of_bound_claim(lambda o, now: cells.access_modes(at(o, "status", "accessModes")))
        ),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=UNSET),
        _AGE,
        _text("VolumeMode", "spec", "volumeMode", default=UNSET, wide=True),
    ),
    "Pod": (
        _NAME,
        Column("Ready", kind_cells.pod(lambda pod, now: f"{pod.ready}/{pod.total}")),
        Column("Status", kind_cells.pod(lambda pod, now: pod.reason)),
        Column("Restarts", kind_cells.pod(pod_cells.restarts)),
        _AGE,
        _text("IP", "status", "podIPs", 0, "ip", default=NONE, wide=True),
        _text("Node", "spec", "nodeName", default=NONE, wide=True),
        _text("Nominated Node", "status", "nominatedNodeName", default=NONE, wide=True),
        Column("Readiness Gates", lambda pod, now: pod_cells.readiness_gates(pod), wide=True),
    ),
    "PodDisruptionBudget": (
        _NAME,
        Column("Min Available", lambda obj, now: str(at(obj, "spec", "minAvailable", default="N/A"))),
        Column("Max Unavailable", lambda obj, now: str(at(obj, "spec", "maxUnavailable", default="N/A"))),
        _number("Allowed Disruptions", "status", "disruptionsAllowed"),
        _AGE,
    ),
    "PriorityClass": (
        _NAME,
        _number("Value", "value"),
        _truth("Global-Default", "globalDefault"),
        _AGE,
        _text("PreemptionPolicy", "preemptionPolicy"),
    ),
    "ReplicaSet": (_NAME, *_REPLICAS, _AGE, *_TEMPLATE, _SELECTOR),
    "ReplicationController": (_NAME, *_REPLICAS, _AGE, *_TEMPLATE, _MAP_SELECTOR),
    "ResourceClaim": (_NAME, Column("State", kind_cells.claim_state), _AGE),
    "ResourceClaimTemplate": (_NAME, _AGE),
    "ResourceSlice": (
        _NAME,
        _text("Node", "spec", "nodeName"),
        _text("Driver", "spec", "driver"),
        _text("Pool", "spec", "pool", "name"),
        _AGE,
    ),
    "RoleBinding": (_NAME, Column("Role", kind_cells.role), _AGE, *_SUBJECTS),
    "Secret": (_NAME, _text("Type", "type"), Column("Data", lambda o, now: len(o.get("data") or {})), _AGE),
    "Service": (
        _NAME,
        _text("Type", "spec", "type"),
        _text("Cluster-IP", "spec", "clusterIPs", 0, default=NONE),
        Column("External-IP", kind_cells.external_address),
        Column("Port(s)", kind_cells.ports),
        _AGE,
        _MAP_SELECTOR,
    ),
    "ServiceAccount": (_NAME, _AGE),
    "StatefulSet": (_NAME, Column("Ready", kind_cells.ready_of_desired), _AGE, *_TEMPLATE),
    "StorageClass": (
        Column("Name", kind_cells.default_class, format="name"),
        _text("Provisioner", "provisioner"),
        _text("ReclaimPolicy", "reclaimPolicy", default="Delete"),
        _text("VolumeBindingMode", "volumeBindingMode", default="Immediate"),
        _text("AllowVolumeExpansion", "allowVolumeExpansion", default=False),
        _AGE,
    ),
    "VolumeAttachment": (
        _NAME,
        Column("Attacher", _path("spec", "attacher"), format="name"),
        _text("PV", "spec", "source", "persistentVolumeName"),
        _text("Node", "spec", "nodeName"),
        _truth("Attached", "status", "attached"),
        _AGE,
    ),
}
