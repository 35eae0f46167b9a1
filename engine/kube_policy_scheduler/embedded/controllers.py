"""What a controller manager does, in small: workloads, owned objects, namespaces, volumes, device claims, and so on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from kube_policy_scheduler.embedded import disruption
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.cells import at
from kube_policy_scheduler.embedded.devices import (
    POD_GROUPS,
    RESOURCE_CLAIMS,
    TEMPLATES,
    USES_TEMPLATES,
    Devices,
    claims_of_group,
)
from kube_policy_scheduler.embedded.devices import claims_of as resource_claims_of
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.store import ADDED, DELETED, Change, Entry, Key
from kube_policy_scheduler.embedded.volumes import CLAIMS, VOLUMES, Volumes, claims_of
from kube_policy_scheduler.embedded.workloads import Workloads
from kube_policy_scheduler.times import parse_rfc3339

_WORKLOADS = ("apps/deployments", "apps/replicasets", "apps/statefulsets", "batch/jobs", "replicationcontrollers")
_BUDGETS = "policy/poddisruptionbudgets"
_BATCH = 64
"""Objects settled at a time."""
_EXPIRY_SECONDS = 60.0
_SETTLE_SECONDS = 0.01
"""Between two batches, so that many changes of one object settle it once."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the controllers do."""

    workloads: bool = True
    """Whether Deployments, ReplicaSets, StatefulSets and Jobs get pods."""
    volumes: bool = True
    """Whether claims are bound to volumes, and new volumes are made for them."""
    devices: bool = True
    """Whether pods get resource claims from templates, and claims that no pod uses lose their devices."""
    event_ttl: timedelta = timedelta(hours=1)
    """How long events are kept."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """One owner reference, resolved."""

    uid: str
    storage_key: str
    key: Key


class Controllers:
    """Settles objects whenever something they depend on has changed."""

    def __init__(self, api: Api, settings: ControllerSettings) -> None:
        self._api = api
        self._settings = settings
        self._volumes = Volumes(api)
        self._devices = Devices(api)
        self._workloads = Workloads(api, self._dependents_of)
        self._queue: deque[tuple[str, Key]] = deque()
        self._queued: set[tuple[str, Key]] = set()
        self._owners: dict[tuple[str, Key], tuple[_Owner, ...]] = {}
        self._dependents: dict[str, set[tuple[str, Key]]] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        for key, collection in api.store.collections().items():
            collection.observe(lambda change, key=key: self._changed(key, change))  # type: ignore[misc]

    def start(self) -> None:
        """Begin to act; what happened before is caught up with."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._expire())]

    async def stop(self) -> None:
        """Stop acting."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _add(self, storage_key: str, key: Key) -> None:
        item = (storage_key, key)
        if item not in self._queued:
            self._queued.add(item)
            self._queue.append(item)
            self._wake.set()

    def _changed(self, storage_key: str, change: Change) -> None:
        entry = change.entry
        if storage_key == "namespaces" or storage_key in _WORKLOADS or storage_key == _BUDGETS:
            self._add(storage_key, entry.key)
        if b'"ownerReferences":[' in entry.body:
            self._track_owners(storage_key, change)
        if change.type == DELETED and entry.uid in self._dependents:
            for dependent in self._dependents.pop(entry.uid):
                self._add(*dependent)
        if storage_key in (CLAIMS, VOLUMES):
            self._volume_changed(storage_key, change)
        if storage_key == "pods":
            for claim in claims_of(entry):
                self._add(CLAIMS, (entry.key[0], claim))
            if USES_TEMPLATES in entry.body:
                self._add("pods", entry.key)
            for name in resource_claims_of(entry):
                self._add(RESOURCE_CLAIMS, (entry.key[0], name))
            for budget in self._api.store.collection(_BUDGETS).scan(entry.key[0]):
                self._add(_BUDGETS, budget.key)
        elif storage_key == RESOURCE_CLAIMS:
            self._add(storage_key, entry.key)
        elif storage_key == POD_GROUPS:
            for pod in self._devices.waiting_for(entry) if change.type == ADDED else ():
                self._add("pods", pod)
            for name in claims_of_group(entry) if change.type == DELETED else ():
                self._add(RESOURCE_CLAIMS, (entry.key[0], name))
        elif storage_key == TEMPLATES:
            for pod in self._devices.waiting_for(entry):
                self._add("pods", pod)
        if change.type == DELETED and entry.key[0]:
            namespace = self._api.store.collection("namespaces").get(("", entry.key[0]))
            if namespace is not None and b'"phase":"Terminating"' in namespace.body:
                self._add("namespaces", namespace.key)

    def _volume_changed(self, storage_key: str, change: Change) -> None:
        self._add(storage_key, change.entry.key)
        if storage_key == VOLUMES:
            for claim in self._volumes.waiting_claims():
                self._add(CLAIMS, claim.key)
        elif change.type == DELETED:
            volume = self._volumes.volume_of(change.entry)
            if volume is not None:
                self._add(VOLUMES, volume.key)

    def _track_owners(self, storage_key: str, change: Change) -> None:
        entry = change.entry
        item = (storage_key, entry.key)
        if change.previous is None or item not in self._owners:
            self._owners[item] = tuple(self._read_owners(entry))
        owners = self._owners.pop(item) if change.type == DELETED else self._owners[item]
        for owner in owners:
            dependents = self._dependents.setdefault(owner.uid, set())
            if change.type == DELETED:
                dependents.discard(item)
            else:
                dependents.add(item)
            if owner.storage_key in _WORKLOADS:
                self._add(owner.storage_key, owner.key)

    def _read_owners(self, entry: Entry) -> Iterator[_Owner]:
        for owner in entry.decode()["metadata"].get("ownerReferences") or ():
            resource = self._api.catalog.by_kind.get((owner.get("apiVersion", ""), owner.get("kind", "")))
            if resource is not None:
                key = (entry.key[0] if resource.namespaced else "", owner.get("name", ""))
                yield _Owner(owner.get("uid", ""), resource.storage_key, key)

    def _dependents_of(self, uid: str) -> list[Entry]:
        found = [self._api.store.collection(kind).get(key) for kind, key in sorted(self._dependents.get(uid, ()))]
        return [entry for entry in found if entry is not None]

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            for _ in range(min(len(self._queue), _BATCH)):
                item = self._queue.popleft()
                self._queued.discard(item)
                self._settle(*item)
            if not self._queue:
                await self._wake.wait()
            await asyncio.sleep(_SETTLE_SECONDS)

    def _settle(self, storage_key: str, key: Key) -> None:
        entry = self._api.store.collection(storage_key).get(key)
        if entry is None:
            return
        is_leaving = b'"deletionTimestamp":"' in entry.body
        if not is_leaving and b'"ownerReferences":[' in entry.body and self._is_orphan(entry):
            self._delete(storage_key, entry)
        elif storage_key == "namespaces":
            self._settle_namespace(entry)
        elif storage_key == _BUDGETS:
            self._settle_budget(entry)
        elif storage_key == CLAIMS and self._settings.volumes:
            self._volumes.settle_claim(entry)
        elif storage_key == VOLUMES and self._settings.volumes:
            self._volumes.settle_volume(entry)
        elif storage_key == "pods" and self._settings.devices:
            self._devices.settle_pod(entry)
        elif storage_key == RESOURCE_CLAIMS and self._settings.devices:
            self._devices.settle_claim(entry)
        elif storage_key in _WORKLOADS and self._settings.workloads:
            self._workloads.settle(storage_key, entry)

    def _is_orphan(self, entry: Entry) -> bool:
        owners = entry.decode()["metadata"].get("ownerReferences") or []
        return bool(owners) and not any(self._exists(owner, entry.key[0]) for owner in owners)

    def _exists(self, owner: Json, namespace: str) -> bool:
        resource = self._api.catalog.by_kind.get((owner.get("apiVersion", ""), owner.get("kind", "")))
        if resource is None:
            return True
        key = (namespace if resource.namespaced else "", owner.get("name", ""))
        found = self._api.collection(resource).get(key)
        return found is not None and found.uid == owner.get("uid")

    def _delete(self, storage_key: str, entry: Entry, *, now: bool = False) -> None:
        if b'"deletionTimestamp":"' in entry.body:
            return
        namespace, name = entry.key
        target = Target("delete", self._api.catalog.by_storage[storage_key], namespace or None, name, "")
        self._api.delete(target, {"gracePeriodSeconds": 0} if now else {})

    def _settle_namespace(self, entry: Entry) -> None:
        if b'"deletionTimestamp":"' not in entry.body:
            return
        name, left = entry.key[1], 0
        for storage_key, collection in self._api.store.collections().items():
            for inner in list(collection.scan(name)):
                self._delete(storage_key, inner)
                left += collection.get(inner.key) is not None
        if not left:
            obj = entry.decode()
            obj["spec"].pop("finalizers", None)
            if not obj["metadata"].get("finalizers"):
                self._api.store.collection("namespaces").remove(entry.key, last=obj)

    def _settle_budget(self, entry: Entry) -> None:
        budget = entry.decode()
        pods = [
            pod.decode()
            for pod in self._api.store.collection("pods").scan(entry.key[0])
            if disruption.selects(budget, dict(pod.labels))
        ]
        status = disruption.status(budget, pods, replicas_of=self._replicas_of)
        allowed = "True" if status["disruptionsAllowed"] else "False"
        reason = "SufficientPods" if status["disruptionsAllowed"] else "InsufficientPods"
        status["conditions"] = [
            {
                "type": "DisruptionAllowed",
                "status": allowed,
                "reason": reason,
                "message": "",
                "observedGeneration": status["observedGeneration"],
                "lastTransitionTime": budget["metadata"]["creationTimestamp"],
            }
        ]
        if budget.get("status") != status:
            self._api.store.collection(_BUDGETS).put({**budget, "status": status})

    def _replicas_of(self, pod: Json) -> int | None:
        for owner in pod["metadata"].get("ownerReferences") or ():
            resource = self._api.catalog.by_kind.get((owner.get("apiVersion", ""), owner.get("kind", "")))
            if not owner.get("controller") or resource is None:
                continue
            found = self._api.collection(resource).get((pod["metadata"]["namespace"], owner["name"]))
            if found is not None:
                replicas = at(found.decode(), "spec", "replicas")
                return int(replicas) if replicas is not None else None
        return None

    async def _expire(self) -> None:
        events = self._api.store.collection("events")
        while True:
            await asyncio.sleep(_EXPIRY_SECONDS)
            oldest = self._api.now() - self._settings.event_ttl
            for entry in list(events.scan()):
                event = entry.decode()
                seen = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
                if parse_rfc3339(seen or event["metadata"]["creationTimestamp"]) < oldest:
                    events.remove(entry.key)
