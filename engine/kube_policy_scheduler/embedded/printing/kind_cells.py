"""Cells that need more than the value of one field, kind by kind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.printing import cells, pod_cells
from kube_policy_scheduler.embedded.printing.cells import NONE, UNKNOWN, at
from kube_policy_scheduler.times import human_duration, parse_rfc3339

Cell = Callable[[Json, datetime], Any]
"""What a cell shows, of an object and the present moment."""


def pod(function: Callable[[pod_cells.PodSummary, datetime], str]) -> Cell:
    """Return a cell that shows something of a pod's summary."""
    return lambda pod, now: function(pod_cells.summarise(pod), now)


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
    """Return who reported an event."""
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
