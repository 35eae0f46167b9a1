"""A cluster full of nodes and of pods that wait, for measurements; and the count of what became of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from engine.adapters.kube.transport import Transport

Json = dict[str, Any]
SCHEDULER = "policy-scheduler"
CONCURRENCY = 32
TENANTS = ("red", "green", "blue", "gold")
CPU_MILLIS, MEMORY_MIB, PODS = 4000, 32768, 110
POD_CPU_MILLIS, POD_MEMORY_MIB = 100, 500


def node(number: int) -> Json:
    """A node of scheduler_perf's size, in one of three zones."""
    name = f"node-{number:05d}"
    offered = {"cpu": f"{CPU_MILLIS}m", "memory": f"{MEMORY_MIB}Mi", "pods": str(PODS)}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(number: int) -> Json:
    """A pod of scheduler_perf's size, of one of four tenants."""
    requests = {"cpu": f"{POD_CPU_MILLIS}m", "memory": f"{POD_MEMORY_MIB}Mi"}
    container = {"name": "main", "image": "registry.example/pause:3.9", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:06d}",
            "namespace": "default",
            "labels": {"app": "bench", "tenant": TENANTS[number % len(TENANTS)]},
        },
        "spec": {"schedulerName": SCHEDULER, "containers": [container]},
    }


class FullCluster:
    """One cluster, seen through a client of its own."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def fill(self, *, nodes: int, pods: int) -> None:
        """Create nodes, without the taint that new ones get, and pods."""
        await _all(self._add_node(number) for number in range(nodes))
        await _all(self._create("/api/v1/namespaces/default/pods", pod(number)) for number in range(pods))

    async def _add_node(self, number: int) -> None:
        wanted = node(number)
        await self._create("/api/v1/nodes", wanted)
        path = f"/api/v1/nodes/{wanted['metadata']['name']}"
        await self._send("PATCH", path, {"spec": {"taints": []}}, content_type="application/merge-patch+json")

    async def _create(self, path: str, body: Json) -> None:
        await self._send("POST", path, body)

    async def _send(self, verb: str, path: str, body: Json, *, content_type: str = "application/json") -> Json:
        answer = await self._transport.request(
            verb, path, body=msgspec.json.encode(body), content_type=content_type, timeout_seconds=60
        )
        found: Json = msgspec.json.decode(answer)
        return found

    # --- the start -----------------------------------------------------------------------------------

    async def hold_lease(self, name: str) -> Callable[[], Awaitable[None]]:
        """Hold a scheduler's lease, so that it fills its caches and waits; return what lets it begin."""
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec = {"holderIdentity": "benchmark", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
        await self._create(path, kind | {"spec": spec | {"leaseTransitions": 0}})

        async def release() -> None:
            change = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
            await self._send("PATCH", f"{path}/{name}", change, content_type="application/merge-patch+json")

        return release

    # --- the end -------------------------------------------------------------------------------------

    async def wait_bound(self, expected: int, *, timeout_seconds: float) -> int:
        """Wait until so many pods are bound or the time is up; return how many are."""
        version = (await self._get("/api/v1/pods?limit=1"))["metadata"]["resourceVersion"]
        path = f"/api/v1/pods?watch=1&fieldSelector=spec.nodeName!%3D&resourceVersion={version}"
        seen = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                stream = await self._transport.open_stream(path, idle_seconds=timeout_seconds)
                rest = b""
                while seen < expected:
                    chunk = await stream.read()
                    lines = (rest + chunk).split(b"\n")
                    rest = lines.pop()
                    seen += sum(line.startswith(b'{"type":"ADDED"') for line in lines)
                stream.close()
        return seen

    async def scheduled(self) -> dict[str, float]:
        """Return when the scheduler says that it had bound each pod, Unix seconds, from its events."""
        found: dict[str, float] = {}
        async for event in self._pages("/apis/events.k8s.io/v1/namespaces/default/events"):
            if event["reason"] == "Scheduled":
                found[event["regarding"]["name"]] = datetime.fromisoformat(event["eventTime"]).timestamp()
        return found

    async def event_total(self) -> int:
        """Return how many events there are."""
        page = await self._get("/apis/events.k8s.io/v1/namespaces/default/events?limit=1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)

    async def recount(self) -> tuple[int, list[str]]:
        """Return how many pods are bound, and what is wrong: nodes that hold more than they have."""
        per_node: Counter[str] = Counter()
        async for found in self._pages("/api/v1/pods"):
            per_node[found["spec"].get("nodeName", "")] += 1
        unbound = per_node.pop("", 0)
        wrong = [f"{unbound} pods are not bound"] if unbound else []
        for name, number in per_node.items():
            taken = (number * POD_CPU_MILLIS, number * POD_MEMORY_MIB, number)
            if any(have > may for have, may in zip(taken, (CPU_MILLIS, MEMORY_MIB, PODS), strict=True)):
                wrong.append(f"{name} holds {number} pods")
        return per_node.total(), wrong

    async def _pages(self, path: str) -> Any:
        more = ""
        while True:
            page = await self._get(f"{path}?limit=1000{more}")
            for item in page["items"]:
                yield item
            if not (token := page["metadata"].get("continue")):
                return
            more = f"&continue={token}"

    async def _get(self, path: str) -> Json:
        found: Json = msgspec.json.decode(await self._transport.request("GET", path, timeout_seconds=60))
        return found


async def _all(works: Iterable[Awaitable[None]]) -> None:
    slots = asyncio.Semaphore(CONCURRENCY)

    async def one(work: Awaitable[None]) -> None:
        async with slots:
            await work

    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(one(work))
