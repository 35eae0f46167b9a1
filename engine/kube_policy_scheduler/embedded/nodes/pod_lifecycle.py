"""What a kubelet writes into pods. Pure: objects are changed in place, times are given."""

from __future__ import annotations

import zlib
from typing import Any

from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.nodes.node_lifecycle import node_address

RUN_SECONDS_ANNOTATION = "embedded/run-seconds"
"""A pod with this annotation succeeds after as many seconds of running."""


def grace_seconds(pod: Json) -> float:
    """Return how long a pod that is being deleted may take."""
    return float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)


def make_running(pod: Json, *, now: str) -> bool:
    """Turn a bound, pending pod into one that runs; whether anything changed."""
    status = pod.setdefault("status", {})
    if status.get("phase", "Pending") != "Pending" or "deletionTimestamp" in pod["metadata"]:
        return False
    spec = pod["spec"]
    address = pod_address(pod["metadata"].get("uid", ""))
    status["phase"] = "Running"
    status["hostIP"] = node_address(spec["nodeName"])
    status["hostIPs"] = [{"ip": status["hostIP"]}]
    status["podIP"] = status["hostIP"] if spec.get("hostNetwork") else address
    status["podIPs"] = [{"ip": status["podIP"]}]
    status["startTime"] = now
    for name in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
        _set_condition(status, name, now=now)
    if not any(item.get("type") == "PodScheduled" for item in status["conditions"]):
        _set_condition(status, "PodScheduled", now=now)
    status["containerStatuses"] = [_running(container, pod, now=now) for container in spec.get("containers") or ()]
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [_finished(item, pod, now=now) for item in spec["initContainers"]]
    return True


def _set_condition(status: Json, name: str, *, now: str) -> None:
    conditions = [item for item in status.get("conditions") or () if item.get("type") != name]
    status["conditions"] = [
        *conditions,
        {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": now},
    ]


def _container_status(container: Json, pod: Json, state: Json, **more: Any) -> Json:
    image = container.get("image", "")
    digest = zlib.crc32(f"{pod['metadata'].get('uid', '')}/{container['name']}".encode())
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": image,
        "imageID": f"embedded://{image}",
        "containerID": f"embedded://{digest:08x}",
        **more,
    }


def _running(container: Json, pod: Json, *, now: str) -> Json:
    return _container_status(container, pod, {"running": {"startedAt": now}}, started=True)


def _finished(container: Json, pod: Json, *, now: str) -> Json:
    if container.get("restartPolicy") == "Always":
        return _running(container, pod, now=now)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return _container_status(container, pod, {"terminated": ended}, started=False)


def pod_address(uid: str) -> str:
    """Return an address for a pod, always the same for one uid."""
    code = zlib.crc32(uid.encode())
    return f"10.{(code >> 16) % 256}.{(code >> 8) % 256}.{1 + code % 254}"


def fail(pod: Json, *, reason: str, message: str, now: str) -> None:
    """Mark a pod as one the kubelet refused to run."""
    status = pod.setdefault("status", {})
    status |= {"phase": "Failed", "reason": reason, "message": message, "startTime": now}


def run_seconds(pod: Json) -> float | None:
    """Return how long a pod runs before it succeeds by itself; None when it runs for ever."""
    text = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS_ANNOTATION)
    try:
        return None if text is None else max(float(text), 0.0)
    except ValueError:
        return None


def complete(pod: Json, *, now: str) -> bool:
    """Turn a running pod into one that has succeeded; whether anything changed."""
    status = pod["status"]
    if status.get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]:
        return False
    status["phase"] = "Succeeded"
    for container in status.get("containerStatuses") or ():
        started = (container["state"].get("running") or {}).get("startedAt", now)
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now}
        container |= {"state": {"terminated": ended}, "ready": False, "started": False}
    for item in status["conditions"]:
        if item["type"] in ("Ready", "ContainersReady"):
            item |= {"status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
    return True
