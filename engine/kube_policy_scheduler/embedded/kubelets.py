"""Simulated kubelets: nodes that are ready, pods that run after they are bound and end when deleted."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import zlib
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from kube_policy_scheduler.embedded import kubelet_admission
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.kubelet_admission import NodeUsage, Usage
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.resources import resource
from kube_policy_scheduler.embedded.store import DELETED, Change, Entry, Key
from kube_policy_scheduler.times import rfc3339

_PREFIX = "node.kubernetes.io/"
_CONDITION_TAINTS = {
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
    ("MemoryPressure", "True"): "memory-pressure",
    ("DiskPressure", "True"): "disk-pressure",
    ("PIDPressure", "True"): "pid-pressure",
    ("NetworkUnavailable", "True"): "network-unavailable",
}
_EVICTING = frozenset({"not-ready", "unreachable"})
"""Taints that come with effect NoExecute too."""
_MANAGED = frozenset({*_CONDITION_TAINTS.values(), "unschedulable"})
_NODE_LABELS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_INFO = {
    "osImage": "Embedded",
    "kernelVersion": "0",
    "containerRuntimeVersion": "embedded://1",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


def condition(node: Json, name: str) -> str:
    """Return the status of a condition, empty where the node does not have it."""
    for item in (node.get("status") or {}).get("conditions") or ():
        if item.get("type") == name:
            return str(item.get("status", ""))
    return ""


def node_address(name: str) -> str:
    """Return an address for a node, always the same for one name."""
    code = zlib.crc32(name.encode())
    return f"172.{16 + (code >> 16) % 16}.{(code >> 8) % 256}.{1 + code % 254}"


def make_ready(node: Json, *, now: str, version: str) -> bool:
    """Give a node without a condition Ready all a kubelet of a version reports; whether anything changed."""
    if condition(node, "Ready"):
        return False
    name = node["metadata"]["name"]
    status = node.setdefault("status", {})
    given = {item.get("type") for item in status.get("conditions") or ()}
    reported = [
        {
            "type": kind,
            "status": state,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        for kind, state, reason, message in _HEALTHY
        if kind not in given
    ]
    status["conditions"] = [*(status.get("conditions") or ()), *reported]
    if not status.get("addresses"):
        status["addresses"] = [
            {"type": "InternalIP", "address": node_address(name)},
            {"type": "Hostname", "address": name},
        ]
    info = {"kubeletVersion": version, **_INFO}
    status["nodeInfo"] = info | {key: value for key, value in (status.get("nodeInfo") or {}).items() if value}
    labels = node["metadata"].get("labels") or {}
    node["metadata"]["labels"] = {"kubernetes.io/hostname": name, **_NODE_LABELS, **labels}
    return True


def settle_taints(node: Json, *, now: str) -> bool:
    """Bring the taints that follow from conditions and cordoning up to date; whether anything changed."""
    spec = node.setdefault("spec", {})
    before = spec.get("taints") or []
    wanted = {text for (name, state), text in _CONDITION_TAINTS.items() if condition(node, name) == state}
    if not condition(node, "Ready"):
        wanted |= {"not-ready"} & {str(item.get("key", "")).removeprefix(_PREFIX) for item in before}
    if spec.get("unschedulable"):
        wanted.add("unschedulable")
    pairs = {(_PREFIX + name, "NoSchedule") for name in wanted}
    if condition(node, "Ready"):
        pairs |= {(_PREFIX + name, "NoExecute") for name in wanted & _EVICTING}
    kept = [item for item in before if not _managed(item) or (item.get("key"), item.get("effect")) in pairs]
    present = {(item.get("key"), item.get("effect")) for item in kept}
    added = [{"key": key, "effect": effect, "timeAdded": now} for key, effect in sorted(pairs - present)]
    after = kept + added
    if after == before:
        return False
    if after:
        spec["taints"] = after
    else:
        spec.pop("taints", None)
    return True


def _managed(taint: Json) -> bool:
    key = str(taint.get("key", ""))
    return key.startswith(_PREFIX) and key.removeprefix(_PREFIX) in _MANAGED


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
    """Return how long a pod runs before it succeeds; None if it runs forever."""
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


_BATCH = 64
"""Actions between two turns of the event loop, so that requests are answered meanwhile."""
_DELETING = b'"deletionTimestamp":"'
_NODE_NAME, _PHASE = 2, 4
"""Positions of `spec.nodeName` and `status.phase` in the row of a pod's entry."""
_LEASE_NAMESPACE = "kube-node-lease"
_LEASE_SECONDS = 40

_Action = Literal["node", "run", "complete", "stop", "heartbeat"]


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """How the simulated nodes behave."""

    start_seconds: float = 0.0
    """From a pod's binding to its phase Running."""
    stop_seconds: float = 0.0
    """From a pod's deletion to its removal; never more than its grace period."""
    mark_nodes_ready: bool = True
    """Whether a node without a condition Ready becomes ready."""
    settle_taints: bool = True
    """Whether the taints that follow from conditions and from cordoning are kept up to date."""
    check_pods: bool = True
    """Whether a kubelet refuses pods that do not fit its node, as real ones do."""
    heartbeat_seconds: float | None = None
    """How often each node renews its Lease; None: once."""


class SimulatedKubelets:
    """Acts for the kubelets of all nodes of one cluster."""

    def __init__(self, api: Api, settings: KubeletSettings) -> None:
        self._api = api
        self._settings = settings
        self._pods = api.store.collection("pods")
        self._nodes = api.store.collection("nodes")
        self._leases = api.store.collection("coordination.k8s.io/leases")
        self._usage: dict[str, NodeUsage] = {}
        self._known_nodes: dict[str, tuple[Entry, Json]] = {}
        self._early: dict[str, list[Entry]] = {}  # pods bound to nodes that do not exist yet
        self._due: list[tuple[float, int, _Action, Key, str]] = []
        self._order = count()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._pods.observe(self._pod_changed)
        self._nodes.observe(self._node_changed)

    def start(self) -> None:
        """Begin to act; what happened before is caught up with."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Stop acting."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _now(self) -> float:
        return self._loop.time() if self._loop is not None else 0.0

    def _schedule(self, action: _Action, entry: Entry, *, delay_seconds: float = 0.0) -> None:
        heapq.heappush(self._due, (self._now() + delay_seconds, next(self._order), action, entry.key, entry.uid))
        self._wake.set()

    def _node_changed(self, change: Change) -> None:
        entry = change.entry
        if change.type == DELETED:
            self._usage.pop(entry.key[1], None)
            self._known_nodes.pop(entry.key[1], None)
            return
        self._schedule("node", entry)
        if change.previous is None:
            for pod in self._early.pop(entry.key[1], ()):
                self._schedule("run", pod)

    def _pod_changed(self, change: Change) -> None:
        entry, previous = change.entry, change.previous
        node = entry.row[_NODE_NAME]
        if not node:
            return
        if change.type == DELETED or entry.row[_PHASE] in ("Succeeded", "Failed"):
            if node in self._usage:
                self._usage[node].remove(entry.uid)
            if change.type == DELETED:
                return
        if _DELETING in entry.body:
            if previous is None or _DELETING not in previous.body:
                grace = grace_seconds(entry.decode())
                self._schedule("stop", entry, delay_seconds=min(self._settings.stop_seconds, grace))
        elif entry.row[_PHASE] == "Pending" and (previous is None or not previous.row[_NODE_NAME]):
            self._schedule("run", entry, delay_seconds=self._settings.start_seconds)
        elif entry.row[_PHASE] == "Running" and previous is None and self._settings.check_pods:
            self._usage.setdefault(node, NodeUsage()).add(entry.uid, Usage.of(entry.decode()))

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            acted = 0
            while self._due and self._due[0][0] <= self._now() and acted < _BATCH:
                _, _, action, key, uid = heapq.heappop(self._due)
                self._act(action, key, uid)
                acted += 1
            if self._due and self._due[0][0] <= self._now():
                await asyncio.sleep(0)
                continue
            delay = self._due[0][0] - self._now() if self._due else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()

    def _act(self, action: _Action, key: Key, uid: str) -> None:
        on_node = action in ("node", "heartbeat")
        entry = (self._nodes if on_node else self._pods).get(key)
        if entry is None or entry.uid != uid:
            return
        obj, now = entry.decode(), rfc3339(self._api.now())
        match action:
            case "node":
                self._settle_node(entry, obj, now=now)
            case "heartbeat":
                self._renew_lease(entry)
            case "run":
                self._run_pod(entry, obj, now=now)
            case "complete":
                if complete(obj, now=now):
                    self._pods.put(obj)
            case "stop":
                self._stop_pod(entry)

    def _settle_node(self, entry: Entry, node: Json, *, now: str) -> None:
        settings = self._settings
        made_ready = settings.mark_nodes_ready and make_ready(node, now=now, version=self._api.catalog.git_version)
        settled = settings.settle_taints and settle_taints(node, now=now)
        if made_ready or settled:
            self._nodes.put(node)
        if made_ready:
            self._renew_lease(entry)

    def _renew_lease(self, node: Entry) -> None:
        name = node.key[1]
        now = self._api.now()
        existing = self._leases.get((_LEASE_NAMESPACE, name))
        lease: Json = (
            existing.decode()
            if existing is not None
            else {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": name,
                    "namespace": _LEASE_NAMESPACE,
                    "uid": f"{node.uid}-lease",
                    "creationTimestamp": rfc3339(now),
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid}],
                },
                "spec": {"holderIdentity": name, "leaseDurationSeconds": _LEASE_SECONDS},
            }
        )
        lease["spec"]["renewTime"] = rfc3339(now, "microseconds")
        self._leases.put(lease)
        if self._settings.heartbeat_seconds is not None:
            self._schedule("heartbeat", node, delay_seconds=self._settings.heartbeat_seconds)

    def _run_pod(self, entry: Entry, pod: Json, *, now: str) -> None:
        name = pod["spec"]["nodeName"]
        node = self._nodes.get(("", name))
        if entry.row[_PHASE] != "Pending" or _DELETING in entry.body:
            return
        if node is None:
            self._early.setdefault(name, []).append(entry)
            return
        decoded = self._decoded(node)
        if condition(decoded, "Ready") == "Unknown":
            return
        if self._settings.check_pods:
            used, usage = self._usage.setdefault(name, NodeUsage()), Usage.of(pod)
            rejection = kubelet_admission.check(pod, decoded, used, usage)
            if rejection is not None:
                fail(pod, reason=rejection.reason, message=rejection.message, now=now)
                self._pods.put(pod)
                return
            used.add(entry.uid, usage)
        make_running(pod, now=now)
        running = self._pods.put(pod)
        seconds = run_seconds(pod)
        if seconds is not None:
            self._schedule("complete", running, delay_seconds=seconds)

    def _decoded(self, node: Entry) -> Json:
        """Return a node's content, decoded once for each of its versions; only to be read."""
        known = self._known_nodes.get(node.key[1])
        if known is None or known[0] is not node:
            known = self._known_nodes[node.key[1]] = (node, node.decode())
        return known[1]

    def _stop_pod(self, entry: Entry) -> None:
        namespace, name = entry.key
        target = Target("delete", resource("pods"), namespace, name, "")
        self._api.delete(target, {"gracePeriodSeconds": 0})
