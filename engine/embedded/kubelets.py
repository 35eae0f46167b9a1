"""Simulated kubelets: nodes that are ready, pods that run after they are bound and end when deleted."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from dataclasses import dataclass
from itertools import count

from engine.embedded import pod_lifecycle
from engine.embedded.api import Api
from engine.embedded.clock import timestamp
from engine.embedded.store import DELETED, Change, Key


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """How the simulated nodes behave."""

    start_seconds: float = 0.0
    """From a pod's binding to its phase Running."""
    stop_seconds: float = 0.0
    """From a pod's deletion to its removal; never more than its grace period."""
    mark_nodes_ready: bool = True
    """Whether a node that says nothing about its condition Ready becomes ready."""


class SimulatedKubelets:
    """Acts for the kubelets of all nodes of one cluster."""

    def __init__(self, api: Api, settings: KubeletSettings) -> None:
        self._api = api
        self._settings = settings
        self._due: list[tuple[float, int, str, Key, str]] = []
        self._order = count()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        api.store.collection("pods").observe(self._pod_changed)
        api.store.collection("nodes").observe(self._node_changed)

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

    def _schedule(self, action: str, key: Key, uid: str, *, delay_seconds: float) -> None:
        heapq.heappush(self._due, (self._now() + delay_seconds, next(self._order), action, key, uid))
        self._wake.set()

    def _node_changed(self, change: Change) -> None:
        if change.type != DELETED and change.previous is None and self._settings.mark_nodes_ready:
            self._schedule("ready", change.entry.key, change.entry.uid, delay_seconds=0.0)

    def _pod_changed(self, change: Change) -> None:
        entry, previous = change.entry, change.previous
        if change.type == DELETED or not entry.row[2]:
            return
        if b'"deletionTimestamp":"' in entry.body:
            if previous is None or b'"deletionTimestamp":"' not in previous.body:
                delay = min(self._settings.stop_seconds, pod_lifecycle.grace_seconds(entry.decode()))
                self._schedule("stop", entry.key, entry.uid, delay_seconds=delay)
        elif entry.row[4] == "Pending" and (previous is None or not previous.row[2]):
            self._schedule("run", entry.key, entry.uid, delay_seconds=self._settings.start_seconds)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            acted = 0
            while self._due and self._due[0][0] <= self._now() and acted < 64:
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

    def _act(self, action: str, key: Key, uid: str) -> None:
        collection = self._api.store.collection("nodes" if action == "ready" else "pods")
        entry = collection.get(key)
        if entry is None or entry.uid != uid:
            return
        obj = entry.decode()
        now = timestamp(self._api.now())
        match action:
            case "ready":
                if pod_lifecycle.make_node_ready(obj, now=now):
                    collection.put(obj)
            case "run":
                if pod_lifecycle.make_running(obj, now=now):
                    collection.put(obj)
            case _:
                if obj["metadata"].get("finalizers"):
                    obj["metadata"]["deletionGracePeriodSeconds"] = 0
                    collection.put(obj)
                else:
                    collection.remove(key)
