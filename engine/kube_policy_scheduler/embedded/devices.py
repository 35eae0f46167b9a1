"""The controller of resource claims: pods get claims from templates, and claims lose users that are gone or done."""

from __future__ import annotations

import copy

from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.cells import at
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.resources import resource
from kube_policy_scheduler.embedded.store import Entry, Key

RESOURCE_CLAIMS = "resource.k8s.io/resourceclaims"
TEMPLATES = "resource.k8s.io/resourceclaimtemplates"
POD_GROUPS = "scheduling.k8s.io/podgroups"
FINALIZER = "resource.kubernetes.io/delete-protection"
_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim: which entry of its pod it was made for."""
USES_TEMPLATES = b'"resourceClaimTemplateName":'
_FINISHED = ("Succeeded", "Failed")
_PHASE = 4
"""Position of `status.phase` in the row of a pod's entry."""


class Devices:
    """Makes claims and frees them. Each method settles one object, and may be repeated."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods = api.store.collection("pods")
        self._claims = api.store.collection(RESOURCE_CLAIMS)
        self._templates = api.store.collection(TEMPLATES)
        self._groups = api.store.collection(POD_GROUPS)

    def settle_pod(self, entry: Entry) -> None:
        """Make the claims that a pod needs of templates, and name them in its status."""
        if USES_TEMPLATES not in entry.body or _is_done(entry) or b'"deletionTimestamp":"' in entry.body:
            return
        pod = entry.decode()
        group = at(pod, "spec", "schedulingGroup", "podGroupName")
        if group and self._groups.get((entry.key[0], group)) is None:
            return  # some of the claims may be the group's
        statuses: list[Json] = list(at(pod, "status", "resourceClaimStatuses", default=[]))
        known = {one["name"] for one in statuses}
        for reference in at(pod, "spec", "resourceClaims", default=[]):
            template = self._templates.get((entry.key[0], reference.get("resourceClaimTemplateName") or ""))
            if reference["name"] in known or template is None:
                continue
            group = self._sharing(pod, reference)
            name = self._claim_for(group or pod, reference["name"], template)
            if name is not None and group is not None:
                self._name_in_group(group, reference["name"], name)
            if name is not None:
                statuses.append({"name": reference["name"], "resourceClaimName": name})
        if len(statuses) > len(known):
            pod.setdefault("status", {})["resourceClaimStatuses"] = statuses
            self._pods.put(pod)

    def settle_claim(self, entry: Entry) -> None:
        """Remove users that are gone or done; without users a claim loses its devices, then its finalizer."""
        claim = entry.decode()
        meta, status = claim["metadata"], claim.get("status") or {}
        users = status.get("reservedFor") or []
        left = [user for user in users if self._still_uses(user, meta["namespace"])]
        is_leaving, is_freed = "deletionTimestamp" in meta, False
        if len(left) < len(users) or (is_leaving and not left and "allocation" in status):
            status = {key: value for key, value in status.items() if key != "reservedFor"}
            if left:
                status["reservedFor"] = left
            else:
                for key in ("allocation", "devices"):
                    status.pop(key, None)
            claim["status"] = status
            claim = self._claims.put(claim).decode()
            meta, is_freed = claim["metadata"], not left
        if FINALIZER in (meta.get("finalizers") or ()) and "allocation" not in status and (is_freed or is_leaving):
            self._update(claim, [one for one in meta["finalizers"] if one != FINALIZER])
        elif not left and users and self._is_of_a_finished_pod(meta):
            self._api.delete(_target("delete", *entry.key), {})

    def waiting_for(self, source: Entry) -> list[Key]:
        """Return the pods that may need claims of a template or of a PodGroup."""
        name = source.key[1].encode()
        return [pod.key for pod in self._pods.scan(source.key[0]) if USES_TEMPLATES in pod.body and name in pod.body]

    def _sharing(self, pod: Json, reference: Json) -> Json | None:
        """Return the PodGroup of a pod if a claim of the pod is the group's."""
        name = at(pod, "spec", "schedulingGroup", "podGroupName")
        entry = self._groups.get((pod["metadata"]["namespace"], name)) if name else None
        group = entry.decode() if entry is not None else None
        return group if group is not None and reference in at(group, "spec", "resourceClaims", default=[]) else None

    def _name_in_group(self, group: Json, reference: str, name: str) -> None:
        """Name a claim that was made for a PodGroup in its status."""
        statuses: list[Json] = list(at(group, "status", "resourceClaimStatuses", default=[]))
        if all(one["name"] != reference for one in statuses):
            statuses.append({"name": reference, "resourceClaimName": name})
            group.setdefault("status", {})["resourceClaimStatuses"] = statuses
            self._groups.put(group)

    def _claim_for(self, maker: Json, reference: str, template: Entry) -> str | None:
        """Return the name of the claim for an entry of a pod or PodGroup, made now if it does not exist."""
        meta = maker["metadata"]
        for entry in self._claims.scan(meta["namespace"]):
            if meta["uid"].encode() in entry.body:
                found = entry.decode()["metadata"]
                owner: Json = next((one for one in found.get("ownerReferences") or () if one.get("controller")), {})
                if owner.get("uid") == meta["uid"] and at(found, "annotations", _POD_CLAIM_NAME) == reference:
                    return str(found["name"])
        inner = copy.deepcopy(template.decode()["spec"])
        wanted: Json = inner.get("metadata") or {}
        made: Json = {
            "metadata": {
                "generateName": f"{meta['name']}-{reference}-",
                "annotations": {**(wanted.get("annotations") or {}), _POD_CLAIM_NAME: reference},
                "ownerReferences": [
                    {
                        "apiVersion": maker["apiVersion"],
                        "kind": maker["kind"],
                        "name": meta["name"],
                        "uid": meta["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": inner.get("spec") or {},
        }
        if wanted.get("labels"):
            made["metadata"]["labels"] = wanted["labels"]
        try:
            self._api.create(_target("create", meta["namespace"], ""), made)
        except errors.ApiError:
            return None
        return str(made["metadata"]["name"])

    def _still_uses(self, user: Json, namespace: str) -> bool:
        if user.get("resource") == "podgroups" and user.get("apiGroup") == "scheduling.k8s.io":
            group = self._groups.get((namespace, user.get("name", "")))
            return group is not None and group.uid == user.get("uid")
        if user.get("resource") != "pods" or user.get("apiGroup"):
            return True
        pod = self._pods.get((namespace, user.get("name", "")))
        return pod is not None and pod.uid == user.get("uid") and not _is_done(pod)

    def _is_of_a_finished_pod(self, meta: Json) -> bool:
        for owner in meta.get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") == "Pod":
                pod = self._pods.get((meta["namespace"], owner.get("name", "")))
                return pod is None or pod.uid != owner.get("uid") or _is_done(pod)
        return False

    def _update(self, claim: Json, finalizers: list[str]) -> None:
        claim["metadata"]["finalizers"] = finalizers
        self._api.update(_target("update", claim["metadata"]["namespace"], claim["metadata"]["name"]), claim)


def claims_of_group(group: Entry) -> set[str]:
    """Return the names of the resource claims that a PodGroup shares among its pods and that were not made for it."""
    named = (one.get("resourceClaimName") for one in at(group.decode(), "spec", "resourceClaims", default=[]))
    return {name for name in named if name}


def claims_of(pod: Entry) -> set[str]:
    """Return the names of the resource claims that a pod uses."""
    if b'"resourceClaims":' not in pod.body and b'"extendedResourceClaimStatus":' not in pod.body:
        return set()
    obj = pod.decode()
    named = [one.get("resourceClaimName") for one in at(obj, "spec", "resourceClaims", default=[])]
    made = [one.get("resourceClaimName") for one in at(obj, "status", "resourceClaimStatuses", default=[])]
    extended = at(obj, "status", "extendedResourceClaimStatus", "resourceClaimName")
    return {name for name in (*named, *made, extended) if name}


def _is_done(pod: Entry) -> bool:
    return pod.row[_PHASE] in _FINISHED


def _target(verb: str, namespace: str, name: str) -> Target:
    return Target(verb, resource("resourceclaims", group="resource.k8s.io"), namespace, name, "")
