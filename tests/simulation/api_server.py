"""A small model of an API server: nodes and pods, watches that lag and break, requests that fail in every way.

Judges as it goes: whatever the scheduler does that Kubernetes would have to pay for ends up in `violations`.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from engine.adapters.kube.errors import (
    ConnectionLost,
    KubeError,
    Unreachable,
    Withheld,
    error_from_answer,
)
from engine.cluster import objects

Json = dict[str, Any]
EPOCH = 1_800_000_000.0


class Watch:
    """One kind's changes on their way to one scheduler: in order, late, and now and then cut."""

    def __init__(
        self,
        server: ApiServer,
        kind: str,
        *,
        replaced: Callable[..., None],
        changed: Callable[..., None],
        deleted: Callable[..., None],
    ) -> None:
        self._server, self._kind = server, kind
        self._replaced, self._changed, self._deleted = replaced, changed, deleted
        self._ahead: deque[tuple[str, Any]] = deque()
        self._more = asyncio.Event()
        self.connected = False
        self.position = 0
        """Up to which version all changes have been handed over."""

    def offer(self, verb: str, thing: Json) -> None:
        """Send a change; lost where nobody watches."""
        if self.connected:
            self._ahead.append((verb, self._server.decoded(self._kind, thing)))
            self._more.set()

    def cut(self) -> None:
        """End the connection: what was on its way never arrives."""
        self.connected = False
        self._ahead.clear()
        self._more.set()

    async def run(self) -> None:
        """List and watch for ever."""
        random, server = self._server.random, self._server
        while True:
            await asyncio.sleep(random.random() * 0.5)
            listed = [server.decoded(self._kind, thing) for thing in server.listing(self._kind)]
            version = server.version
            self.connected = True
            await asyncio.sleep(random.random() * server.lag_seconds)
            if not self.connected:
                continue
            self._replaced(listed)
            self.position = version
            while self.connected:
                if not self._ahead:
                    self._more.clear()
                    await self._more.wait()
                await asyncio.sleep(random.random() * server.lag_seconds)
                for _ in range(random.randint(1, 8)):
                    if self._ahead:
                        verb, thing = self._ahead.popleft()
                        (self._deleted if verb == "DELETED" else self._changed)(thing)
                        self.position = int(thing.metadata.resource_version)


class ApiServer:
    """The truth."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        """By name; all are in one namespace."""
        self.watches: list[Watch] = []
        self.violations: list[str] = []
        self.lag_seconds = 0.2
        self.fault_rate = 0.0
        self.bound: dict[str, str] = {}
        """Node by uid of every pod ever bound."""
        self.quota: dict[str, int] = {}
        self.requests = 0
        self.clock_ahead = 0.0
        """Seconds by which the scheduler's machine is ahead of the truth, because somebody set its clock."""
        self.leases: dict[str, Json] = {}
        self._version = 0
        self._uids = 0

    @property
    def version(self) -> int:
        """The resource version of the last change."""
        return self._version

    # --- what happens ---------------------------------------------------------------------------------

    def now(self) -> float:
        """Return unix seconds."""
        return EPOCH + asyncio.get_running_loop().time()

    def listing(self, kind: str) -> list[Json]:
        """Return all objects of a kind; pods that ended are not listed."""
        return list(self.nodes.values()) if kind == "nodes" else [p for p in self.pods.values() if not _over(p)]

    @staticmethod
    def decoded(kind: str, thing: Json) -> Any:
        """Return the object as a reflector would hand it over."""
        return msgspec.convert(thing, objects.Node if kind == "nodes" else objects.Pod)

    def _tell(self, kind: str, verb: str, thing: Json) -> None:
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        if kind == "pods" and verb == "MODIFIED" and _over(thing):
            verb = "DELETED"  # the watch asks for unfinished pods
        for watch in self.watches:
            if watch._kind == kind:
                watch.offer(verb, json.loads(json.dumps(thing)))

    def set_node(self, name: str, *, cpu: int, labels: dict[str, str], unschedulable: bool = False) -> None:
        """Create or update a node."""
        verb = "MODIFIED" if name in self.nodes else "ADDED"
        self.nodes[name] = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
            "spec": {"unschedulable": unschedulable},
            "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "8"}},
        }
        self._tell("nodes", verb, self.nodes[name])

    def delete_node(self, name: str) -> None:
        """Delete a node; its pods are collected later, unless it comes back."""
        self._tell("nodes", "DELETED", self.nodes.pop(name))
        asyncio.get_running_loop().call_later(5 + 15 * self.random.random(), self._collect, name)

    def _collect(self, node: str) -> None:
        if node not in self.nodes:
            for name in [n for n, p in self.pods.items() if p["spec"].get("nodeName") == node]:
                self._remove(name)

    def create_pod(self, name: str, spec: Json, labels: dict[str, str], *, namespace: str = "default") -> None:
        """Create a pod."""
        self._uids += 1
        self.pods[name] = {
            "metadata": {"name": name, "namespace": namespace, "uid": f"{name}.{self._uids}", "labels": labels},
            "spec": {"schedulerName": "policy-scheduler", **spec},
            "status": {"phase": "Pending"},
        }
        self._tell("pods", "ADDED", self.pods[name])

    def delete_pod(self, name: str) -> None:
        """Delete a pod: at once where it is on no node, else after its grace period."""
        pod = self.pods[name]
        if not pod["spec"].get("nodeName"):
            self._remove(name)
        elif "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
            self._tell("pods", "MODIFIED", pod)
            uid = pod["metadata"]["uid"]
            loop = asyncio.get_running_loop()
            loop.call_later(5 * self.random.random(), lambda: self._remove(name, uid=uid))

    def finish_pod(self, name: str) -> None:
        """Let a pod succeed."""
        pod = self.pods[name]
        pod["status"]["phase"] = "Succeeded"
        self._tell("pods", "MODIFIED", pod)
        del self.pods[name]

    def _remove(self, name: str, *, uid: str | None = None) -> None:
        pod = self.pods.get(name)
        if pod is not None and uid in (None, pod["metadata"]["uid"]):
            del self.pods[name]
            self._tell("pods", "DELETED", pod)

    # --- requests -------------------------------------------------------------------------------------

    def answer(self, verb: str, path: str, body: bytes) -> bytes:
        """Carry out a request; raise what the API server would answer."""
        self.requests += 1
        parts = path.split("/")
        if "leases" in path:
            return self._answer_lease(verb, parts[7] if len(parts) > 7 else "", json.loads(body) if body else {})
        name, subresource = parts[6], parts[7] if len(parts) > 7 else ""
        pod = self.pods.get(name)
        given = json.loads(body) if body else {}
        if pod is None:
            raise refusal(404, f'pods "{name}" not found')
        uid = given.get("metadata", {}).get("uid") or given.get("preconditions", {}).get("uid")
        if uid is not None and uid != pod["metadata"]["uid"]:
            raise refusal(409, f"uid {uid} is not {pod['metadata']['uid']}")
        match verb, subresource:
            case "POST", "binding":
                self._bind(pod, given["target"]["name"])
            case "PATCH", "status":
                if given["metadata"].get("resourceVersion") not in (None, pod["metadata"]["resourceVersion"]):
                    raise refusal(409, "the object has been modified")
                if "nominatedNodeName" in given["status"]:
                    pod["status"]["nominatedNodeName"] = given["status"]["nominatedNodeName"] or ""
                merged = {c["type"]: c for c in pod["status"].get("conditions", [])}
                merged |= {c["type"]: c for c in given["status"].get("conditions", [])}
                pod["status"]["conditions"] = list(merged.values())
                self._tell("pods", "MODIFIED", pod)
            case "DELETE", "":
                self.delete_pod(name)
            case "GET", "":
                pass
            case _:
                raise AssertionError(f"unexpected {verb} {path}")
        return json.dumps(pod).encode()

    def _answer_lease(self, verb: str, name: str, given: Json) -> bytes:
        name = name or given.get("metadata", {}).get("name", "")
        known = self.leases.get(name)
        conditions = given.get("preconditions") or given.get("metadata", {})
        if known is not None and conditions.get("resourceVersion") not in (None, known["metadata"]["resourceVersion"]):
            raise refusal(409, "the lease has been modified")
        match verb:
            case "GET" if not name or name.startswith("?"):
                return json.dumps({"items": list(self.leases.values())}).encode()
            case "POST" if known is not None:
                raise refusal(409, "the lease exists")
            case "GET" | "PUT" | "DELETE" if known is None:
                raise refusal(404, "no such lease")
            case "POST" | "PUT":
                self._version += 1
                given["metadata"] |= {"resourceVersion": str(self._version), "uid": name}
                self.leases[name] = given
            case "DELETE":
                del self.leases[name]
        return json.dumps(self.leases.get(name, {})).encode()

    def _bind(self, pod: Json, node: str) -> None:
        uid = pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            raise refusal(409, f"pod {uid} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            raise refusal(409, f"pod {uid} is already assigned to node {pod['spec']['nodeName']}")
        if uid in self.bound:
            self.violations.append(f"{uid} is bound twice")
        self.bound[uid] = node
        pod["spec"]["nodeName"] = node
        pod["status"].pop("nominatedNodeName", None)
        self._judge(pod, node)
        self._tell("pods", "MODIFIED", pod)
        asyncio.get_running_loop().call_later(self.random.random(), self._start, pod)

    def _start(self, pod: Json) -> None:
        if self.pods.get(pod["metadata"]["name"]) is pod:
            pod["status"]["phase"] = "Running"
            pod["status"]["startTime"] = "2026-11-21T10:00:00Z"
            self._tell("pods", "MODIFIED", pod)

    def _judge(self, pod: Json, node: str) -> None:
        name = pod["metadata"]["name"]
        there = [p for p in self.pods.values() if p["spec"].get("nodeName") == node]
        if node in self.nodes:
            offered = int(self.nodes[node]["status"]["allocatable"]["cpu"]) * 1000
            used = sum(cpu_millis(p) for p in there)
            if used > offered or len(there) > 8:
                self.violations.append(f"{name} makes {used} of {offered} cpu and {len(there)} pods on {node}")
        solo = pod["metadata"]["labels"].get("solo")
        if solo and sum(p["metadata"]["labels"].get("solo") == solo for p in there) > 1:
            self.violations.append(f"{name} is on {node} beside a pod that it must not meet")
        tenant = pod["metadata"]["labels"].get("tenant")
        if tenant in self.quota:
            held = sum(
                p["metadata"]["labels"].get("tenant") == tenant and bool(p["spec"].get("nodeName"))
                for p in self.pods.values()
            )
            if held > self.quota[tenant]:
                self.violations.append(
                    f"{name} is number {held} of tenant {tenant}, which may have {self.quota[tenant]}"
                )


class Connection:
    """The way to the server, in place of a Transport: a request may fail in any way in which real ones do."""

    is_reachable = True

    def aside(self) -> Connection:
        """Return another connection: there is no waiting on this one."""
        return self

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.closed = False
        self.is_cut = False
        """Whether nothing gets through."""

    async def request(
        self, verb: str, path: str, *, body: bytes = b"", may_send: Callable[[], bool] | None = None, **_: Any
    ) -> bytes:
        """Send a request, as `Transport.request` does."""
        server, random = self._server, self._server.random
        loop = asyncio.get_running_loop()
        fault = random.choice(FAULTS) if random.random() < server.fault_rate else ""
        if self.closed:
            await loop.create_future()
        if fault == "unreachable" or self.is_cut:
            await asyncio.sleep(random.random() * 0.1)
            raise Unreachable("no connection")
        if may_send is not None and not may_send():
            raise Withheld("may not send")
        answer: asyncio.Future[bytes] = loop.create_future()

        def arrive() -> None:
            if fault in ("500 before", "429", "lost request"):
                result: bytes | KubeError = {
                    "500 before": refusal(500, "it broke"),
                    "429": refusal(429, "later"),
                    "lost request": ConnectionLost("cut"),
                }[fault]
            else:
                try:
                    result = server.answer(verb, path, body)
                except KubeError as error:
                    result = error
                if fault == "500 after":
                    result = refusal(500, "it broke late")
                elif fault == "lost answer":
                    result = ConnectionLost("cut")
            pause = random.random() * (10 if fault == "slow" else 0.1)
            loop.call_later(pause, settle, result)

        def settle(result: bytes | KubeError) -> None:
            if answer.done() or self.closed:
                return
            if isinstance(result, KubeError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        loop.call_later(random.random() * 0.1, arrive)
        return await answer

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)


FAULTS: Sequence[str] = ("unreachable", "500 before", "500 after", "429", "lost request", "lost answer", "slow")


def refusal(status: int, message: str) -> KubeError:
    """Return the error of a refusing answer."""
    return error_from_answer(status, json.dumps({"message": message, "reason": "Refused", "code": status}).encode())


def cpu_millis(pod: Json) -> int:
    """Return what a pod of the model requests."""
    return sum(int(c["resources"]["requests"]["cpu"].rstrip("m")) for c in pod["spec"]["containers"])


def _over(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Succeeded")
