"""The controller of volumes: claims are bound to volumes, or get new ones, as their storage class requires."""

from __future__ import annotations

from uuid import uuid4

from kube_policy_scheduler.embedded.admission import PROTECTION
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.cells import at
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.store import Entry
from kube_policy_scheduler.quantities.quantity import units
from kube_policy_scheduler.times import rfc3339

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BOUND = "pv.kubernetes.io/bind-completed"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ZONE = "topology.kubernetes.io/zone"
_FINISHED = ("Succeeded", "Failed")
_PHASE = 4
"""Position of `status.phase` in the row of a pod's entry."""


class Volumes:
    """Brings claims and volumes together. Each method settles one object, and may be repeated."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._claims = api.store.collection(CLAIMS)
        self._volumes = api.store.collection(VOLUMES)
        self._classes = api.store.collection("storage.k8s.io/storageclasses")

    def settle_claim(self, entry: Entry) -> None:
        """Bind a claim, or release one that is being deleted and no longer used."""
        claim = entry.decode()
        if "deletionTimestamp" in claim["metadata"]:
            if not self._is_used(claim):
                self._release(CLAIMS, entry, claim)
            return
        if at(claim, "status", "phase") == "Bound":
            return
        volume = self._volume_for(claim)
        if volume is None:
            volume = self._provision(claim)
        if volume is not None:
            self._bind(claim, volume)

    def settle_volume(self, entry: Entry) -> None:
        """Set the phase of a volume, or release one that is being deleted and not bound."""
        volume = entry.decode()
        reference = at(volume, "spec", "claimRef")
        if "deletionTimestamp" in volume["metadata"]:
            if at(volume, "status", "phase") != "Bound" or self._claim_of(reference) is None:
                self._release(VOLUMES, entry, volume)
            return
        claim = self._claim_of(reference)
        if reference is None:
            self._set_phase(volume, "Available")
        elif claim is not None:
            self.settle_claim(claim)
        elif reference.get("uid"):
            if at(volume, "spec", "persistentVolumeReclaimPolicy") == "Delete":
                self._volumes.remove(entry.key)
            else:
                self._set_phase(volume, "Released")

    def waiting_claims(self) -> list[Entry]:
        """Return the claims that are not bound yet."""
        return [entry for entry in self._claims.scan() if b'"phase":"Bound"' not in entry.body]

    def volume_of(self, claim: Entry) -> Entry | None:
        """Return the volume that a claim names."""
        return self._volumes.get(("", at(claim.decode(), "spec", "volumeName", default="")))

    def _claim_of(self, reference: Json | None) -> Entry | None:
        if reference is None:
            return None
        entry = self._claims.get((reference.get("namespace", ""), reference.get("name", "")))
        return entry if entry is not None and reference.get("uid") in (None, "", entry.uid) else None

    def _is_used(self, claim: Json) -> bool:
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        pods = self._api.store.collection("pods").scan(namespace)
        return any(name in claims_of(pod) for pod in pods if pod.row[_PHASE] not in _FINISHED)

    def _release(self, storage_key: str, entry: Entry, obj: Json) -> None:
        collection = self._api.store.collection(storage_key)
        left = [item for item in obj["metadata"].get("finalizers", ()) if item != PROTECTION[obj["kind"]]]
        if left:
            if left != obj["metadata"]["finalizers"]:
                obj["metadata"]["finalizers"] = left
                collection.put(obj)
        else:
            collection.remove(entry.key)

    def _set_phase(self, volume: Json, phase: str) -> None:
        if at(volume, "status", "phase") != phase:
            volume["status"] = {"phase": phase, "lastPhaseTransitionTime": rfc3339(self._api.now())}
            self._volumes.put(volume)

    def _volume_for(self, claim: Json) -> Json | None:
        meta = claim["metadata"]
        named = at(claim, "spec", "volumeName")
        fitting: list[Json] = []
        for entry in self._volumes.scan():
            volume = entry.decode()
            reference = at(volume, "spec", "claimRef")
            if reference is not None:
                if (reference.get("namespace"), reference.get("name")) == (meta["namespace"], meta["name"]) and (
                    reference.get("uid") in (None, "", meta["uid"])
                ):
                    return volume
            elif entry.key[1] == named:
                return volume
            elif not named and self._binds_at_once(claim) and _fits(volume, claim):
                fitting.append(volume)
        return min(fitting, key=_capacity, default=None)

    def _class_of(self, claim: Json) -> Json | None:
        name = at(claim, "spec", "storageClassName")
        entry = self._classes.get(("", name)) if name else None
        return entry.decode() if entry is not None else None

    def _binds_at_once(self, claim: Json) -> bool:
        chosen = self._class_of(claim)
        return chosen is None or chosen.get("volumeBindingMode") != "WaitForFirstConsumer"

    def _provision(self, claim: Json) -> Json | None:
        chosen = self._class_of(claim)
        node = at(claim, "metadata", "annotations", _SELECTED_NODE)
        if chosen is None or chosen["provisioner"] == _NO_PROVISIONER:
            return None
        if at(claim, "spec", "volumeName") or (node is None and not self._binds_at_once(claim)):
            return None
        name = f"pvc-{claim['metadata']['uid']}"
        volume: Json = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "uid": str(uuid4()), "creationTimestamp": rfc3339(self._api.now())},
            "spec": {
                "capacity": {"storage": at(claim, "spec", "resources", "requests", "storage", default="0")},
                "accessModes": at(claim, "spec", "accessModes", default=[]),
                "storageClassName": chosen["metadata"]["name"],
                "persistentVolumeReclaimPolicy": chosen.get("reclaimPolicy", "Delete"),
                "volumeMode": at(claim, "spec", "volumeMode", default="Filesystem"),
                "csi": {"driver": chosen["provisioner"], "volumeHandle": name},
            },
        }
        zone = self._zone_of(node) if node else None
        if zone is not None:
            expression = {"key": _ZONE, "operator": "In", "values": [zone]}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            volume["spec"]["nodeAffinity"] = {"required": terms}
        return volume

    def _zone_of(self, node: str) -> str | None:
        entry = self._api.store.collection("nodes").get(("", node))
        return entry.labels.get(_ZONE) if entry is not None else None

    def _bind(self, claim: Json, volume: Json) -> None:
        meta = claim["metadata"]
        volume["spec"]["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        }
        volume["status"] = {"phase": "Bound", "lastPhaseTransitionTime": rfc3339(self._api.now())}
        claim["spec"]["volumeName"] = volume["metadata"]["name"]
        meta["annotations"] = {**(meta.get("annotations") or {}), _BOUND: "yes"}
        spec = volume["spec"]
        claim["status"] = {
            "phase": "Bound",
            "accessModes": spec.get("accessModes", []),
            "capacity": spec.get("capacity", {}),
        }
        self._claims.put(claim)
        self._volumes.put(volume)


def claims_of(pod: Entry) -> set[str]:
    """Return the names of the claims a pod uses."""
    if b'"persistentVolumeClaim":' not in pod.body:
        return set()
    volumes = at(pod.decode(), "spec", "volumes", default=[])
    return {item["persistentVolumeClaim"]["claimName"] for item in volumes if "persistentVolumeClaim" in item}


def _capacity(volume: Json) -> int:
    return units(at(volume, "spec", "capacity", "storage", default="0"))


def _fits(volume: Json, claim: Json) -> bool:
    if at(volume, "status", "phase") not in (None, "Pending", "Available"):
        return False
    same_class = at(volume, "spec", "storageClassName", default="") == at(claim, "spec", "storageClassName", default="")
    modes = set(at(claim, "spec", "accessModes", default=[]))
    wanted = units(at(claim, "spec", "resources", "requests", "storage", default="0"))
    return same_class and modes <= set(at(volume, "spec", "accessModes", default=[])) and _capacity(volume) >= wanted
