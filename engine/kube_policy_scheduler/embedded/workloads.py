"""Controllers of workloads: ReplicaSets, Deployments, StatefulSets and Jobs get the pods they request."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterable

import orjson

from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.cells import at
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.resources import resource
from kube_policy_scheduler.embedded.store import Entry
from kube_policy_scheduler.times import rfc3339

_HASH_LABEL = "pod-template-hash"
_HEAD_BYTES = 60
"""An object's kind is among its first bytes."""
_FINISHED = ("Succeeded", "Failed")
_HASH_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Workloads:
    """Brings pods in line with the workloads that own them. Each method settles one object, and may be repeated."""

    def __init__(self, api: Api, dependents_of: Callable[[str], list[Entry]]) -> None:
        self._api = api
        self._dependents_of = dependents_of

    def settle(self, storage_key: str, entry: Entry) -> None:
        """Do what a workload of any kind needs now."""
        obj = entry.decode()
        if "deletionTimestamp" in obj["metadata"]:
            return
        match storage_key:
            case "apps/replicasets" | "replicationcontrollers":
                self._replica_set(storage_key, obj)
            case "apps/deployments":
                self._deployment(obj)
            case "apps/statefulsets":
                self._stateful_set(obj)
            case "batch/jobs":
                self._job(obj)
            case _:
                pass

    def _owned(self, obj: Json, kind: bytes = b'"kind":"Pod"') -> list[Entry]:
        return [entry for entry in self._dependents_of(obj["metadata"]["uid"]) if kind in entry.body[:_HEAD_BYTES]]

    def _create_pod(self, owner: Json, *, name: str = "", labels: Json | None = None) -> bool:
        template = copy.deepcopy(at(owner, "spec", "template", default={}))
        meta = template.get("metadata") or {}
        meta["labels"] = {**(meta.get("labels") or {}), **(labels or {})}
        meta |= {"name": name} if name else {"generateName": f"{owner['metadata']['name']}-"}
        meta["ownerReferences"] = [reference_to(owner)]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template.get("spec") or {}}
        target = Target("create", resource("pods"), owner["metadata"]["namespace"], "", "")
        try:
            self._api.create(target, pod)
        except errors.ApiError:
            return False
        return True

    def _delete_pods(self, pods: Iterable[Entry]) -> None:
        for entry in pods:
            target = Target("delete", resource("pods"), entry.key[0], entry.key[1], "")
            self._api.delete(target, {})

    def _write_status(self, storage_key: str, obj: Json, status: Json) -> None:
        done = {key: value for key, value in status.items() if value or key in ("replicas", "observedGeneration")}
        if obj.get("status") != done:
            obj["status"] = done
            self._api.store.collection(storage_key).put(obj)

    def _replica_set(self, storage_key: str, obj: Json) -> None:
        active = [entry for entry in self._owned(obj) if entry.row[4] not in _FINISHED]
        living = [entry for entry in active if not _is_leaving(entry)]
        wanted = int(at(obj, "spec", "replicas", default=1))
        for _ in range(wanted - len(living)):
            if not self._create_pod(obj):
                break
        if len(living) > wanted:
            # those that run on a node are deleted last, as they have most to lose
            order = sorted(living, key=lambda entry: (bool(entry.row[2]), entry.row[4] == "Running", entry.key))
            self._delete_pods(order[: len(living) - wanted])
        ready = sum(map(_is_ready, living))
        status = {
            "replicas": max(len(living), 0),
            "fullyLabeledReplicas": len(living),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": obj["metadata"].get("generation", 1),
        }
        self._write_status(storage_key, obj, status)

    def _deployment(self, obj: Json) -> None:
        sets = self._api.store.collection("apps/replicasets")
        template_hash = _template_hash(at(obj, "spec", "template", default={}))
        wanted = int(at(obj, "spec", "replicas", default=1))
        owned = [entry.decode() for entry in self._owned(obj, b'"kind":"ReplicaSet"')]
        current = next((item for item in owned if at(item, "metadata", "labels", _HASH_LABEL) == template_hash), None)
        if current is None:
            current = self._create_set(obj, template_hash, wanted)
            owned.append(current)
        for item in owned:
            replicas = wanted if item is current else 0
            if at(item, "spec", "replicas") != replicas:
                item["spec"]["replicas"] = replicas
                item["metadata"]["generation"] = item["metadata"].get("generation", 1) + 1
                sets.put(item)
        total = sum(at(item, "status", "replicas", default=0) for item in owned)
        ready = sum(at(item, "status", "readyReplicas", default=0) for item in owned)
        status = {
            "observedGeneration": obj["metadata"].get("generation", 1),
            "replicas": total,
            "updatedReplicas": at(current, "status", "replicas", default=0),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(wanted - ready, 0),
            "conditions": self._deployment_conditions(obj, complete=ready >= wanted, name=current["metadata"]["name"]),
        }
        self._write_status("apps/deployments", obj, status)

    def _deployment_conditions(self, obj: Json, *, complete: bool, name: str) -> list[Json]:
        wanted = {
            "Available": (complete, "MinimumReplicasAvailable" if complete else "MinimumReplicasUnavailable"),
            "Progressing": (True, "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated"),
        }
        before = {item["type"]: item for item in at(obj, "status", "conditions", default=[])}
        now = rfc3339(self._api.now())
        conditions = []
        for kind, (true, reason) in wanted.items():
            old = before.get(kind, {})
            same = old.get("status") == str(true) and old.get("reason") == reason
            conditions.append(
                old
                if same
                else {
                    "type": kind,
                    "status": str(true),
                    "reason": reason,
                    "message": f'ReplicaSet "{name}"',
                    "lastUpdateTime": now,
                    "lastTransitionTime": now,
                }
            )
        return conditions

    def _create_set(self, owner: Json, template_hash: str, replicas: int) -> Json:
        template = copy.deepcopy(owner["spec"]["template"])
        template.setdefault("metadata", {}).setdefault("labels", {})[_HASH_LABEL] = template_hash
        selector = copy.deepcopy(owner["spec"].get("selector") or {})
        selector.setdefault("matchLabels", {})[_HASH_LABEL] = template_hash
        made = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{owner['metadata']['name']}-{template_hash}",
                "labels": dict(template["metadata"]["labels"]),
                "ownerReferences": [reference_to(owner)],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        }
        target = Target("create", resource("replicasets", group="apps"), owner["metadata"]["namespace"], "", "")
        stored: Json = orjson.loads(self._api.create(target, made))
        return stored

    def _stateful_set(self, obj: Json) -> None:
        name, wanted = obj["metadata"]["name"], int(at(obj, "spec", "replicas", default=1))
        pods = {entry.key[1]: entry for entry in self._owned(obj)}
        ordered = at(obj, "spec", "podManagementPolicy", default="OrderedReady") != "Parallel"
        for ordinal in range(wanted):
            pod = pods.get(f"{name}-{ordinal}")
            if pod is None:
                index = {
                    "apps.kubernetes.io/pod-index": str(ordinal),
                    "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}",
                }
                self._create_pod(obj, name=f"{name}-{ordinal}", labels=index)
            if ordered and (pod is None or not _is_ready(pod)):
                break
        kept = {f"{name}-{ordinal}" for ordinal in range(wanted)}
        self._delete_pods(entry for key, entry in pods.items() if key not in kept and not _is_leaving(entry))
        ready = sum(map(_is_ready, pods.values()))
        self._write_status(
            "apps/statefulsets",
            obj,
            {
                "observedGeneration": obj["metadata"].get("generation", 1),
                "replicas": len(pods),
                "readyReplicas": ready,
                "currentReplicas": len(pods),
                "availableReplicas": ready,
            },
        )

    def _job(self, obj: Json) -> None:
        pods = self._owned(obj)
        succeeded = sum(entry.row[4] == "Succeeded" for entry in pods)
        failed = sum(entry.row[4] == "Failed" for entry in pods)
        active = [entry for entry in pods if entry.row[4] not in _FINISHED and not _is_leaving(entry)]
        completions = int(at(obj, "spec", "completions", default=1))
        parallelism = int(at(obj, "spec", "parallelism", default=1))
        wanted = 0 if at(obj, "spec", "suspend") else min(parallelism, completions - succeeded)
        if failed > int(at(obj, "spec", "backoffLimit", default=6)):
            wanted = 0
        for _ in range(wanted - len(active)):
            if not self._create_pod(obj, labels={"job-name": obj["metadata"]["name"]}):
                break
        now = rfc3339(self._api.now())
        status = {
            "startTime": at(obj, "status", "startTime", default=now),
            "active": max(wanted, 0),
            "succeeded": succeeded,
            "failed": failed,
            "ready": sum(map(_is_ready, active)),
        }
        before = obj.get("status") or {}
        if succeeded >= completions:
            done = {"type": "Complete", "status": "True", "lastTransitionTime": now}
            status["conditions"] = before.get("conditions") or [done]
            status["completionTime"] = before.get("completionTime", now)
        self._write_status("batch/jobs", obj, status)


def reference_to(owner: Json) -> Json:
    """Return the owner reference of a controller's dependent."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _is_leaving(entry: Entry) -> bool:
    return b'"deletionTimestamp":"' in entry.body


def _is_ready(entry: Entry) -> bool:
    if entry.row[4] != "Running" or _is_leaving(entry):
        return False
    conditions = at(entry.decode(), "status", "conditions", default=[])
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def _template_hash(template: Json) -> str:
    code = zlib.crc32(orjson.dumps(template, option=orjson.OPT_SORT_KEYS))
    text = ""
    for _ in range(8):
        code, digit = divmod(code, len(_HASH_ALPHABET))
        text += _HASH_ALPHABET[digit]
    return text
