"""The columns kubectl shows for each kind, as one table of names and cell functions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.embedded import cells, pod_cells
from engine.embedded.cells import NONE, UNKNOWN, UNSET, at
from engine.embedded.clock import parse_timestamp
from engine.embedded.errors import Json

Cell = Callable[[Json, datetime], Any]


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


_NAME = Column("Name", _path("metadata", "name"), format="name")
_AGE = Column("Age", cells.age)
_CREATED = Column("Created At", _path("metadata", "creationTimestamp"), type="date")
_TEMPLATE = (
    Column("Containers", lambda obj, now: cells.names(cells.template_containers(obj)), wide=True),
    Column("Images", lambda obj, now: cells.images(cells.template_containers(obj)), wide=True),
)
_SELECTOR = Column("Selector", lambda obj, now: cells.label_selector(at(obj, "spec", "selector")), wide=True)
_MAP_SELECTOR = Column("Selector", lambda obj, now: cells.labels(at(obj, "spec", "selector")), wide=True)


def _pod(function: Callable[[pod_cells.PodSummary, datetime], str]) -> Cell:
    return lambda pod, now: function(pod_cells.summarise(pod), now)


def _node_status(node: Json, now: datetime) -> str:
    ready = next((item for item in at(node, "status", "conditions", default=[]) if item["type"] == "Ready"), None)
    status = UNKNOWN.strip("<>").capitalize()
    if ready is not None:
        status = "Ready" if ready.get("status") == "True" else "NotReady"
    return status + (",SchedulingDisabled" if at(node, "spec", "unschedulable") else "")


def _node_roles(node: Json, now: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels: Mapping[str, str] = at(node, "metadata", "labels", default={})
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)} | {labels.get("kubernetes.io/role")}
    return cells.joined(sorted(role for role in roles if role))


def _address(kind: str) -> Cell:
    def cell(node: Json, now: datetime) -> str:
        found = (item["address"] for item in at(node, "status", "addresses", default=[]) if item["type"] == kind)
        return next(found, NONE)

    return cell


def _kernel(node: Json, now: datetime) -> str:
    architecture = at(node, "status", "nodeInfo", "architecture")
    kernel = at(node, "status", "nodeInfo", "kernelVersion") or UNKNOWN
    return f"{kernel} ({architecture})" if architecture else str(kernel)


def _info(name: str, key: str) -> Column:
    return Column(name, lambda node, now: at(node, "status", "nodeInfo", key) or UNKNOWN, wide=True)


def _phase(obj: Json, now: datetime) -> str:
    return "Terminating" if at(obj, "metadata", "deletionTimestamp") else str(at(obj, "status", "phase", default=""))


def _event_times(event: Json, now: datetime) -> tuple[str, str]:
    first = cells.since(event.get("firstTimestamp") or event.get("eventTime"), now=now)
    last = cells.since(event["lastTimestamp"], now=now) if event.get("lastTimestamp") else first
    if event.get("series"):
        last = cells.since(event["series"].get("lastObservedTime"), now=now)
    return first, last


def _event_source(event: Json, now: datetime) -> str:
    component = at(event, "source", "component") or event.get("reportingComponent") or ""
    host = at(event, "source", "host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else str(component)


def _event_object(event: Json, now: datetime) -> str:
    about = event.get("involvedObject") or {}
    return "/".join(part for part in (about.get("kind", "").lower(), about.get("name", "")) if part)


def _ports(service: Json, now: datetime) -> str:
    return cells.joined(
        f"{port['port']}{':' + str(port['nodePort']) if port.get('nodePort') else ''}/{port.get('protocol', 'TCP')}"
        for port in at(service, "spec", "ports", default=[])
    )


def _external_address(service: Json, now: datetime) -> str:
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    given = at(service, "status", "loadBalancer", "ingress", default=[])
    addresses = [item.get("ip") or item.get("hostname") for item in given] + (spec.get("externalIPs") or [])
    return cells.joined(addresses, empty="<pending>" if spec.get("type") == "LoadBalancer" else NONE)


def _claim(volume: Json, now: datetime) -> str:
    claim = at(volume, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _of_bound_claim(cell: Cell) -> Cell:
    return lambda claim, now: cell(claim, now) if at(claim, "spec", "volumeName") else ""


def _default_class(obj: Json, now: datetime) -> str:
    annotation = "storageclass.kubernetes.io/is-default-class"
    default = at(obj, "metadata", "annotations", annotation) == "true"
    return str(obj["metadata"]["name"]) + (" (default)" if default else "")


def _ready_of_desired(obj: Json, now: datetime) -> str:
    return f"{at(obj, 'status', 'readyReplicas', default=0)}/{at(obj, 'spec', 'replicas', default=0)}"


def _claim_state(claim: Json, now: datetime) -> str:
    deleted, allocated = at(claim, "metadata", "deletionTimestamp"), at(claim, "status", "allocation")
    states = ["deleted"] if deleted else []
    if allocated is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated"] + (["reserved"] if at(claim, "status", "reservedFor") else [])
    return ",".join(states)


def _job_status(job: Json, now: datetime) -> str:
    true = {item["type"] for item in at(job, "status", "conditions", default=[]) if item.get("status") == "True"}
    for name, text in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        if name in true:
            return text
    return "Terminating" if at(job, "metadata", "deletionTimestamp") else "Running"


def _job_duration(job: Json, now: datetime) -> str:
    started, ended = at(job, "status", "startTime"), at(job, "status", "completionTime")
    if started is None:
        return ""
    until = parse_timestamp(ended) if ended else now
    return cells.human_duration((until - parse_timestamp(started)).total_seconds())


def _subjects(kind: str) -> Cell:
    def cell(obj: Json, now: datetime) -> str:
        chosen = [item for item in obj.get("subjects") or () if item.get("kind") == kind]
        space = "ServiceAccount"
        return ", ".join(f"{i.get('namespace', '')}/{i['name']}" if kind == space else i["name"] for i in chosen)

    return cell


def _role(obj: Json, now: datetime) -> str:
    return f"{at(obj, 'roleRef', 'kind', default='')}/{at(obj, 'roleRef', 'name', default='')}"


_SUBJECTS = (
    Column("Users", _subjects("User"), wide=True),
    Column("Groups", _subjects("Group"), wide=True),
    Column("ServiceAccounts", _subjects("ServiceAccount"), wide=True),
)
_MODES = "volumeLifecycleModes"
_EVENT = (
    Column("Last Seen", lambda event, now: _event_times(event, now)[1]),
    _text("Type", "type"),
    _text("Reason", "reason"),
    Column("Object", _event_object),
    _text("Subobject", "involvedObject", "fieldPath", wide=True),
    Column("Source", _event_source, wide=True),
    Column("Message", lambda event, now: str(event.get("message") or "").strip()),
    Column("First Seen", lambda event, now: _event_times(event, now)[0], wide=True),
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
    "ClusterRoleBinding": (_NAME, Column("Role", _role), _AGE, *_SUBJECTS),
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
        Column("Ready", _ready_of_desired),
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
        Column("Status", _job_status),
        Column(
            "Completions",
            lambda j, now: f"{at(j, 'status', 'succeeded', default=0)}/{at(j, 'spec', 'completions', default=1)}",
        ),
        Column("Duration", _job_duration),
        _AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "Lease": (_NAME, _text("Holder", "spec", "holderIdentity"), _AGE),
    "Namespace": (_NAME, _text("Status", "status", "phase"), _AGE),
    "Node": (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        _text("Version", "status", "nodeInfo", "kubeletVersion"),
        Column("Internal-IP", _address("InternalIP"), wide=True),
        Column("External-IP", _address("ExternalIP"), wide=True),
        _info("OS-Image", "osImage"),
        Column("Kernel-Version", _kernel, wide=True),
        _info("Container-Runtime", "containerRuntimeVersion"),
    ),
    "PersistentVolume": (
        _NAME,
        _text("Capacity", "spec", "capacity", "storage", default="0"),
        Column("Access Modes", lambda obj, now: cells.access_modes(at(obj, "spec", "accessModes"))),
        _text("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
        Column("Status", _phase),
        Column("Claim", _claim),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=UNSET),
        _text("Reason", "status", "reason"),
        _AGE,
        _text("VolumeMode", "spec", "volumeMode", default=UNSET, wide=True),
    ),
    "PersistentVolumeClaim": (
        _NAME,
        Column("Status", _phase),
        _text("Volume", "spec", "volumeName"),
        Column("Capacity", _of_bound_claim(_path("status", "capacity", "storage", default="0"))),
        Column("Access Modes", _of_bound_claim(lambda o, now: cells.access_modes(at(o, "status", "accessModes")))),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=UNSET),
        _AGE,
        _text("VolumeMode", "spec", "volumeMode", default=UNSET, wide=True),
    ),
    "Pod": (
        _NAME,
        Column("Ready", _pod(lambda pod, now: f"{pod.ready}/{pod.total}")),
        Column("Status", _pod(lambda pod, now: pod.reason)),
        Column("Restarts", _pod(pod_cells.restarts)),
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
    "ResourceClaim": (_NAME, Column("State", _claim_state), _AGE),
    "ResourceClaimTemplate": (_NAME, _AGE),
    "ResourceSlice": (
        _NAME,
        _text("Node", "spec", "nodeName"),
        _text("Driver", "spec", "driver"),
        _text("Pool", "spec", "pool", "name"),
        _AGE,
    ),
    "RoleBinding": (_NAME, Column("Role", _role), _AGE, *_SUBJECTS),
    "Secret": (_NAME, _text("Type", "type"), Column("Data", lambda o, now: len(o.get("data") or {})), _AGE),
    "Service": (
        _NAME,
        _text("Type", "spec", "type"),
        _text("Cluster-IP", "spec", "clusterIPs", 0, default=NONE),
        Column("External-IP", _external_address),
        Column("Port(s)", _ports),
        _AGE,
        _MAP_SELECTOR,
    ),
    "ServiceAccount": (_NAME, _AGE),
    "StatefulSet": (_NAME, Column("Ready", _ready_of_desired), _AGE, *_TEMPLATE),
    "StorageClass": (
        Column("Name", _default_class, format="name"),
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
