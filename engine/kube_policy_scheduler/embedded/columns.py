"""The columns kubectl shows for each kind, as one table of names and cell functions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kube_policy_scheduler.embedded import cells
from kube_policy_scheduler.embedded.cells import NONE, UNKNOWN, UNSET, at, since
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.times import human_duration, parse_rfc3339


@dataclass(slots=True)
class PodSummary:
    """A pod's containers counted up."""

    reason: str
    ready: int = 0
    total: int = 0
    restarts: int = 0
    last_restart: str = ""

    def count_restarts(self, container: Json) -> None:
        """Add a container's restarts."""
        self.restarts += int(container.get("restartCount") or 0)
        self.last_restart = max(self.last_restart, at(container, "lastState", "terminated", "finishedAt", default=""))


def summarise(pod: Json) -> PodSummary:
    """Return the summary of a pod's status."""
    status = pod.get("status") or {}
    conditions = {item.get("type"): item for item in status.get("conditions") or ()}
    summary = PodSummary(status.get("reason") or status.get("phase") or "")
    if at(conditions, "PodScheduled", "reason") == "SchedulingGated":
        summary.reason = "SchedulingGated"
    init_specs = {item["name"]: item for item in at(pod, "spec", "initContainers", default=[])}
    sidecars = {name for name, item in init_specs.items() if item.get("restartPolicy") == "Always"}
    summary.total = len(at(pod, "spec", "containers", default=[])) + len(sidecars)
    sidecar_summary = PodSummary("")
    initializing = _init_containers(status, summary, sidecar_summary, sidecars, init_count=len(init_specs))
    if not initializing or at(conditions, "Initialized", "status") == "True":
        summary.restarts, summary.last_restart = sidecar_summary.restarts, sidecar_summary.last_restart
        _containers(status, summary, ready=at(conditions, "Ready", "status") == "True")
    if at(pod, "metadata", "deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    return summary


def _init_containers(
    status: Json, summary: PodSummary, sidecar_summary: PodSummary, sidecars: set[str], *, init_count: int
) -> bool:
    """Count the init containers; whether the pod is still in one of them."""
    for position, container in enumerate(status.get("initContainerStatuses") or ()):
        sidecar = container.get("name") in sidecars
        summary.count_restarts(container)
        if sidecar:
            sidecar_summary.count_restarts(container)
        terminated = at(container, "state", "terminated")
        waiting = at(container, "state", "waiting", "reason", default="")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            summary.reason = "Init:" + _ended(terminated)
        elif waiting and waiting != "PodInitializing":
            summary.reason = f"Init:{waiting}"
        else:
            summary.reason = f"Init:{position}/{init_count}"
        return True
    return False


def _containers(status: Json, summary: PodSummary, *, ready: bool) -> None:
    running, error = False, ""
    for container in reversed(status.get("containerStatuses") or ()):
        summary.count_restarts(container)
        terminated = at(container, "state", "terminated")
        if waiting := at(container, "state", "waiting", "reason"):
            summary.reason = waiting
        elif terminated is not None:
            summary.reason = _ended(terminated)
            if terminated.get("exitCode"):
                error = summary.reason
        elif container.get("ready") and at(container, "state", "running") is not None:
            running = True
            summary.ready += 1
    if summary.reason == "Completed":
        if running and ready:
            summary.reason = "Running"
        elif error:
            summary.reason = error
        elif running:
            summary.reason = "NotReady"


def _ended(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def restarts(summary: PodSummary, now: datetime) -> str:
    """Return the number of restarts, and how long ago the last one was."""
    if summary.restarts and summary.last_restart:
        return f"{summary.restarts} ({since(summary.last_restart, now=now)} ago)"
    return str(summary.restarts)


def readiness_gates(pod: Json) -> str:
    """Return how many readiness gates are open."""
    gates: list[Any] = at(pod, "spec", "readinessGates", default=[])
    if not gates:
        return NONE
    true = {item.get("type") for item in at(pod, "status", "conditions", default=[]) if item.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}"


Cell = Callable[[Json, datetime], Any]
"""What a cell shows, of an object and the present moment."""


def pod(function: Callable[[PodSummary, datetime], str]) -> Cell:
    """Return a cell that shows something of a pod's summary."""
    return lambda pod, now: function(summarise(pod), now)


def node_status(node: Json, now: datetime) -> str:
    """Return whether a node is ready, and whether it is cordoned."""
    ready = next((item for item in at(node, "status", "conditions", default=[]) if item["type"] == "Ready"), None)
    status = UNKNOWN.strip("<>").capitalize()
    if ready is not None:
        status = "Ready" if ready.get("status") == "True" else "NotReady"
    return status + (",SchedulingDisabled" if at(node, "spec", "unschedulable") else "")


def node_roles(node: Json, now: datetime) -> str:
    """Return the roles in a node's labels."""
    prefix = "node-role.kubernetes.io/"
    labels: Mapping[str, str] = at(node, "metadata", "labels", default={})
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)} | {labels.get("kubernetes.io/role")}
    return cells.joined(sorted(role for role in roles if role))


def address(kind: str) -> Cell:
    """Return a cell that shows a node's first address of a kind."""

    def cell(node: Json, now: datetime) -> str:
        found = (item["address"] for item in at(node, "status", "addresses", default=[]) if item["type"] == kind)
        return next(found, NONE)

    return cell


def kernel(node: Json, now: datetime) -> str:
    """Return kernel and architecture of a node."""
    architecture = at(node, "status", "nodeInfo", "architecture")
    kernel = at(node, "status", "nodeInfo", "kernelVersion") or UNKNOWN
    return f"{kernel} ({architecture})" if architecture else str(kernel)


def phase(obj: Json, now: datetime) -> str:
    """Return the phase, or that it is about to end."""
    return "Terminating" if at(obj, "metadata", "deletionTimestamp") else str(at(obj, "status", "phase", default=""))


def event_times(event: Json, now: datetime) -> tuple[str, str]:
    """Return how long ago an event was first and last seen."""
    first = cells.since(event.get("firstTimestamp") or event.get("eventTime"), now=now)
    last = cells.since(event["lastTimestamp"], now=now) if event.get("lastTimestamp") else first
    if event.get("series"):
        last = cells.since(event["series"].get("lastObservedTime"), now=now)
    return first, last


def event_source(event: Json, now: datetime) -> str:
    """Return the reporter of an event."""
    component = at(event, "source", "component") or event.get("reportingComponent") or ""
    host = at(event, "source", "host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else str(component)


def event_object(event: Json, now: datetime) -> str:
    """Return what an event is about."""
    about = event.get("involvedObject") or {}
    return "/".join(part for part in (about.get("kind", "").lower(), about.get("name", "")) if part)


def ports(service: Json, now: datetime) -> str:
    """Return the ports of a service."""
    return cells.joined(
        f"{port['port']}{':' + str(port['nodePort']) if port.get('nodePort') else ''}/{port.get('protocol', 'TCP')}"
        for port in at(service, "spec", "ports", default=[])
    )


def external_address(service: Json, now: datetime) -> str:
    """Return where a service can be reached from outside."""
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    given = at(service, "status", "loadBalancer", "ingress", default=[])
    addresses = [item.get("ip") or item.get("hostname") for item in given] + (spec.get("externalIPs") or [])
    return cells.joined(addresses, empty="<pending>" if spec.get("type") == "LoadBalancer" else NONE)


def claim(volume: Json, now: datetime) -> str:
    """Return the claim a volume is bound to."""
    reference = at(volume, "spec", "claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def of_bound_claim(cell: Cell) -> Cell:
    """Return a cell that is empty until a claim is bound."""
    return lambda claim, now: cell(claim, now) if at(claim, "spec", "volumeName") else ""


def default_class(obj: Json, now: datetime) -> str:
    """Return the name of a storage class, and whether it is the default."""
    annotation = "storageclass.kubernetes.io/is-default-class"
    default = at(obj, "metadata", "annotations", annotation) == "true"
    return str(obj["metadata"]["name"]) + (" (default)" if default else "")


def ready_of_desired(obj: Json, now: datetime) -> str:
    """Return how many replicas are ready, of how many."""
    return f"{at(obj, 'status', 'readyReplicas', default=0)}/{at(obj, 'spec', 'replicas', default=0)}"


def claim_state(claim: Json, now: datetime) -> str:
    """Return the state of a resource claim."""
    deleted, allocated = at(claim, "metadata", "deletionTimestamp"), at(claim, "status", "allocation")
    states = ["deleted"] if deleted else []
    if allocated is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated"] + (["reserved"] if at(claim, "status", "reservedFor") else [])
    return ",".join(states)


def job_status(job: Json, now: datetime) -> str:
    """Return the state of a job."""
    true = {item["type"] for item in at(job, "status", "conditions", default=[]) if item.get("status") == "True"}
    for name, text in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        if name in true:
            return text
    return "Terminating" if at(job, "metadata", "deletionTimestamp") else "Running"


def job_duration(job: Json, now: datetime) -> str:
    """Return how long a job has run."""
    started, ended = at(job, "status", "startTime"), at(job, "status", "completionTime")
    if started is None:
        return ""
    until = parse_rfc3339(ended) if ended else now
    return human_duration((until - parse_rfc3339(started)).total_seconds())


def subjects(kind: str) -> Cell:
    """Return a cell that lists the subjects of one kind in a binding."""

    def cell(obj: Json, now: datetime) -> str:
        chosen = [item for item in obj.get("subjects") or () if item.get("kind") == kind]
        space = "ServiceAccount"
        return ", ".join(f"{i.get('namespace', '')}/{i['name']}" if kind == space else i["name"] for i in chosen)

    return cell


def role(obj: Json, now: datetime) -> str:
    """Return the role a binding refers to."""
    return f"{at(obj, 'roleRef', 'kind', default='')}/{at(obj, 'roleRef', 'name', default='')}"


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


def _of_condition(obj: Json, kind: str, key: str) -> str:
    conditions = at(obj, "status", "conditions", default=None) or ()
    return next((str(each.get(key, "")) for each in conditions if each.get("type") == kind), "")


def _condition_column(kind: str, key: str, *, title: str = "") -> Column:
    return Column(title or kind, lambda obj, now: _of_condition(obj, kind, key))


_AGE = Column("Age", cells.age)
_CREATED = Column("Created At", _path("metadata", "creationTimestamp"), type="date")
_TEMPLATE = (
    Column("Containers", lambda obj, now: cells.names(cells.template_containers(obj)), wide=True),
    Column("Images", lambda obj, now: cells.images(cells.template_containers(obj)), wide=True),
)
_SELECTOR = Column("Selector", lambda obj, now: cells.label_selector(at(obj, "spec", "selector")), wide=True)
_MAP_SELECTOR = Column("Selector", lambda obj, now: cells.labels(at(obj, "spec", "selector")), wide=True)


_SUBJECTS = (
    Column("Users", subjects("User"), wide=True),
    Column("Groups", subjects("Group"), wide=True),
    Column("ServiceAccounts", subjects("ServiceAccount"), wide=True),
)
_MODES = "volumeLifecycleModes"
_EVENT = (
    Column("Last Seen", lambda event, now: event_times(event, now)[1]),
    _text("Type", "type"),
    _text("Reason", "reason"),
    Column("Object", event_object),
    _text("Subobject", "involvedObject", "fieldPath", wide=True),
    Column("Source", event_source, wide=True),
    Column("Message", lambda event, now: str(event.get("message") or "").strip()),
    Column("First Seen", lambda event, now: event_times(event, now)[0], wide=True),
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
    "ClusterRoleBinding": (_NAME, Column("Role", role), _AGE, *_SUBJECTS),
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
        Column("Ready", ready_of_desired),
        Column("Up-to-date", _path("status", "updatedReplicas", default=0)),
        Column("Available", _path("status", "availableReplicas", default=0)),
        _AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "DeviceClass": (_NAME, _AGE),
    "DeviceTaintRule": (
        _NAME,
        _text("Key", "spec", "taint", "key"),
        _text("Value", "spec", "taint", "value"),
        _text("Effect", "spec", "taint", "effect"),
        Column("TimeAdded", lambda obj, now: cells.since(at(obj, "spec", "taint", "timeAdded"), now=now)),
        _AGE,
    ),
    "Event": _EVENT,
    "Job": (
        _NAME,
        Column("Status", job_status),
        Column(
            "Completions",
            lambda j, now: f"{at(j, 'status', 'succeeded', default=0)}/{at(j, 'spec', 'completions', default=1)}",
        ),
        Column("Duration", job_duration),
        _AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "Lease": (_NAME, _text("Holder", "spec", "holderIdentity"), _AGE),
    "Namespace": (_NAME, _text("Status", "status", "phase"), _AGE),
    "Node": (
        _NAME,
        Column("Status", node_status),
        Column("Roles", node_roles),
        _AGE,
        _text("Version", "status", "nodeInfo", "kubeletVersion"),
        Column("Internal-IP", address("InternalIP"), wide=True),
        Column("External-IP", address("ExternalIP"), wide=True),
        _info("OS-Image", "osImage"),
        Column("Kernel-Version", kernel, wide=True),
        _info("Container-Runtime", "containerRuntimeVersion"),
    ),
    "PersistentVolume": (
        _NAME,
        _text("Capacity", "spec", "capacity", "storage", default="0"),
        Column("Access Modes", lambda obj, now: cells.access_modes(at(obj, "spec", "accessModes"))),
        _text("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
        Column("Status", phase),
        Column("Claim", claim),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=UNSET),
        _text("Reason", "status", "reason"),
        _AGE,
        _text("VolumeMode", "spec", "volumeMode", default=UNSET, wide=True),
    ),
    "PersistentVolumeClaim": (
        _NAME,
        Column("Status", phase),
        _text("Volume", "spec", "volumeName"),
        Column("Capacity", of_bound_claim(_path("status", "capacity", "storage", default="0"))),
        Column("Access Modes", of_bound_claim(lambda o, now: cells.access_modes(at(o, "status", "accessModes")))),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=UNSET),
        _AGE,
        _text("VolumeMode", "spec", "volumeMode", default=UNSET, wide=True),
    ),
    "Pod": (
        _NAME,
        Column("Ready", pod(lambda pod, now: f"{pod.ready}/{pod.total}")),
        Column("Status", pod(lambda pod, now: pod.reason)),
        Column("Restarts", pod(restarts)),
        _AGE,
        _text("IP", "status", "podIPs", 0, "ip", default=NONE, wide=True),
        _text("Node", "spec", "nodeName", default=NONE, wide=True),
        _text("Nominated Node", "status", "nominatedNodeName", default=NONE, wide=True),
        Column("Readiness Gates", lambda pod, now: readiness_gates(pod), wide=True),
    ),
    "PodDisruptionBudget": (
        _NAME,
        Column("Min Available", lambda obj, now: str(at(obj, "spec", "minAvailable", default="N/A"))),
        Column("Max Unavailable", lambda obj, now: str(at(obj, "spec", "maxUnavailable", default="N/A"))),
        _number("Allowed Disruptions", "status", "disruptionsAllowed"),
        _AGE,
    ),
    "SchedulingPolicy": (
        _NAME,
        _text("Owner", "status", "owner"),
        _condition_column("Accepted", "status"),
        _condition_column("Active", "status"),
        _condition_column("Accepted", "reason", title="Reason"),
        _AGE,
        Column("Message", lambda obj, now: _of_condition(obj, "Accepted", "message"), wide=True),
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
    "ResourceClaim": (_NAME, Column("State", claim_state), _AGE),
    "ResourceClaimTemplate": (_NAME, _AGE),
    "ResourceSlice": (
        _NAME,
        _text("Node", "spec", "nodeName"),
        _text("Driver", "spec", "driver"),
        _text("Pool", "spec", "pool", "name"),
        _AGE,
    ),
    "RoleBinding": (_NAME, Column("Role", role), _AGE, *_SUBJECTS),
    "Secret": (_NAME, _text("Type", "type"), Column("Data", lambda o, now: len(o.get("data") or {})), _AGE),
    "Service": (
        _NAME,
        _text("Type", "spec", "type"),
        _text("Cluster-IP", "spec", "clusterIPs", 0, default=NONE),
        Column("External-IP", external_address),
        Column("Port(s)", ports),
        _AGE,
        _MAP_SELECTOR,
    ),
    "ServiceAccount": (_NAME, _AGE),
    "StatefulSet": (_NAME, Column("Ready", ready_of_desired), _AGE, *_TEMPLATE),
    "StorageClass": (
        Column("Name", default_class, format="name"),
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
