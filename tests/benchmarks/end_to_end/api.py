"""The cluster as the measurement sees it, through a client of its own: fills it, and watches pods being bound."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.benchmarks.end_to_end.workloads import NAMESPACE, node
from tests.benchmarks.manifests import Json

CONCURRENCY = 32
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
IS_BOUND = "fieldSelector=spec.nodeName!%3D"
ADDED = b'{"type":"ADDED"'
NAME = re.compile(rb'"name":"([^"]+)"')


class Api:
    """One cluster."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def fill(self, *, nodes: int, pods: Iterable[Json]) -> None:
        """Create nodes, without the taint that new ones get, and pods."""
        await together(self._add_node(node(number)) for number in range(nodes))
        await together(self.create_pod(pod) for pod in pods)

    async def _add_node(self, wanted: Json) -> None:
        await self.send("POST", "/api/v1/nodes", wanted)
        path = f"/api/v1/nodes/{wanted['metadata']['name']}"
        await self.send("PATCH", path, {"spec": {"taints": []}}, content_type="application/merge-patch+json")

    async def create_pod(self, pod: Json) -> None:
        """Create a pod."""
        await self.send("POST", PODS, pod)

    async def hold_lease(self, name: str) -> Callable[[], Awaitable[None]]:
        """Hold a scheduler's lease, so that it fills its caches and waits; return what lets it begin."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec = {"holderIdentity": "benchmark", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
        await self.send("POST", LEASES, kind | {"spec": spec | {"leaseTransitions": 0}})

        async def release() -> None:
            change = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
            await self.send("PATCH", f"{LEASES}/{name}", change, content_type="application/merge-patch+json")

        return release

    async def watch_bound(
        self, seen: dict[str, float], *, expected: int, timeout_seconds: float, watching: asyncio.Event
    ) -> None:
        """Note when each pod is seen to be bound, by `time.monotonic()`, until so many are or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while len(seen) < expected:
                    # what was bound while nobody watched is noted with the time at which it was found
                    page = await self.get(f"{PODS}?{IS_BOUND}")
                    _note((item["metadata"]["name"] for item in page["items"]), seen)
                    if len(seen) < expected:
                        await self._watch(
                            seen, page["metadata"]["resourceVersion"], expected, timeout_seconds, watching
                        )

    async def _watch(
        self, seen: dict[str, float], version: str, expected: int, timeout_seconds: float, watching: asyncio.Event
    ) -> None:
        path = f"{PODS}?watch=1&{IS_BOUND}&resourceVersion={version}"
        stream = await self._transport.open_stream(path, idle_seconds=timeout_seconds)
        watching.set()
        rest = b""
        try:
            while len(seen) < expected and (chunk := await stream.read()):
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                names = (NAME.search(line) for line in lines if line.startswith(ADDED))
                _note((name[1].decode() for name in names if name is not None), seen)
        finally:
            stream.close()

    async def told(self) -> dict[str, float]:
        """Return when the scheduler says that it had bound each pod, Unix seconds, from its events."""
        return {
            event["regarding"]["name"]: datetime.fromisoformat(event["eventTime"]).timestamp()
            async for event in self._pages(EVENTS)
            if event["reason"] == "Scheduled"
        }

    async def event_total(self) -> int:
        """Return how many events there are."""
        page = await self.get(f"{EVENTS}?limit=1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)

    async def placement(self) -> dict[str, str]:
        """Return the node of each pod, "" where it has none."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") async for pod in self._pages(PODS)}

    async def devices_allocated_twice(self) -> list[str]:
        """Return the devices that more than one claim has."""
        seen: Counter[str] = Counter()
        async for found in self._pages(CLAIMS):
            allocation = (found.get("status") or {}).get("allocation") or {"devices": {}}
            for result in allocation["devices"].get("results", ()):
                seen[f"{result['driver']}/{result['pool']}/{result['device']}"] += 1
        return [f"device {name} is allocated {number} times" for name, number in seen.items() if number > 1]

    async def _pages(self, path: str) -> AsyncIterator[Any]:
        more = ""
        while True:
            page = await self.get(f"{path}?limit=1000{more}")
            for item in page["items"]:
                yield item
            if not (token := page["metadata"].get("continue")):
                return
            more = f"&continue={token}"

    async def get(self, path: str) -> Json:
        """Return what is at a path."""
        found: Json = msgspec.json.decode(await self._transport.request("GET", path, timeout_seconds=60))
        return found

    async def watch(self, path: str) -> AsyncIterator[Json]:
        """Yield the events of a watch, until it ends."""
        async for line in self.watch_lines(path):
            yield msgspec.json.decode(line)

    async def watch_lines(self, path: str) -> AsyncIterator[bytes]:
        """Yield the events of a watch as they are written, until it ends."""
        stream = await self._transport.open_stream(path, idle_seconds=3600.0)
        rest = b""
        try:
            while chunk := await stream.read():
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    yield line
        finally:
            stream.close()

    async def send(self, verb: str, path: str, body: Json, *, content_type: str = "application/json") -> None:
        """Send a change."""
        encoded = msgspec.json.encode(body)
        await self._transport.request(verb, path, body=encoded, content_type=content_type, timeout_seconds=60)


def _note(names: Iterable[str], seen: dict[str, float]) -> None:
    now = time.monotonic()
    for name in names:
        seen.setdefault(name, now)


async def together(works: Iterable[Awaitable[None]]) -> None:
    """Do all of them, `CONCURRENCY` at a time."""
    slots = asyncio.Semaphore(CONCURRENCY)

    async def one(work: Awaitable[None]) -> None:
        async with slots:
            await work

    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(one(work))
