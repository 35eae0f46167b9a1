"""Simulated kubelets: nodes that are ready, pods that run after they are bound and end when deleted."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from dataclasses import dataclass
from itertools import count
from typing import Literal

from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.nodes import kubelet_admission, node_lifecycle, pod_lifecycle
from kube_policy_scheduler.embedded.nodes.kubelet_admission import NodeUsage, Usage
from kube_policy_scheduler.embedded.operations.api import Api
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.resources import resource
from kube_policy_scheduler.embedded.storage.store import DELETED, Change, Entry, Key
from kube_policy_scheduler.times import rfc3339

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
    """Whether a node that says nothing about its condition Ready becomes ready."""
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
                grace = pod_lifecycle.grace_seconds(entry.decode())
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
                if pod_lifecycle.complete(obj, now=now):
                    self._pods.put(obj)
            case "stop":
                self._stop_pod(entry)

    def _settle_node(self, entry: Entry, node: Json, *, now: str) -> None:
        settings = self._settings
        made_ready = settings.mark_nodes_ready and node_lifecycle.make_ready(node, now=now)
        settled = settings.settle_taints and node_lifecycle.settle_taints(node, now=now)
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
        if node_lifecycle.condition(decoded, "Ready") == "Unknown":
            return
        if self._settings.check_pods:
            used, usage = self._usage.setdefault(name, NodeUsage()), Usage.of(pod)
            rejection = kubelet_admission.check(pod, decoded, used, usage)
            if rejection is not None:
                pod_lifecycle.fail(pod, reason=rejection.reason, message=rejection.message, now=now)
                self._pods.put(pod)
                return
            used.add(entry.uid, usage)
        pod_lifecycle.make_running(pod, now=now)
        running = self._pods.put(pod)
        seconds = pod_lifecycle.run_seconds(pod)
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
