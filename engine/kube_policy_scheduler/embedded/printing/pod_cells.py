"""What kubectl shows of a pod: how many containers are ready, its status in one word, its restarts. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.printing.cells import NONE, at, since


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
