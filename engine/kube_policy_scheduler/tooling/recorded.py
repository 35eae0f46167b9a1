"""Recorded objects as the API server would have stored them. Knows which kinds decisions read, not what for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.defaulting import BUILTIN_PRIORITY_CLASSES, default_object
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.times import unix_seconds

READ_KINDS: tuple[type, ...] = (
    objects.Namespace,
    objects.Service,
    objects.ReplicationController,
    objects.ReplicaSet,
    objects.StatefulSet,
    objects.PodDisruptionBudget,
    objects.PriorityClass,
    objects.PersistentVolume,
    objects.PersistentVolumeClaim,
    objects.StorageClass,
    objects.CSINode,
    objects.CSIDriver,
    objects.CSIStorageCapacity,
    objects.VolumeAttachment,
    objects.DeviceClass,
    objects.ResourceSlice,
    objects.ResourceClaim,
    objects.ResourceClaimTemplate,
    objects.PodGroup,
    objects.CoschedulingPodGroup,
)
"""Kinds beside nodes and pods that some rule reads; all others in a recorded cluster mean nothing to a decision."""

TAKEN_AT = "policyctl/taken-at"
"""Annotation of the list that a snapshot is: when it was taken."""

_BY_KIND: Mapping[str, type] = {kind.__name__: kind for kind in READ_KINDS}
_COSCHEDULING_GROUP = "scheduling.x-k8s.io/"

PriorityClasses = Mapping[str, Mapping[str, Any]]
_PRIORITY = ("priority", "priorityClassName", "preemptionPolicy")


def priority_classes(found: Iterable[FixtureObject]) -> PriorityClasses:
    """Return the priority classes among recorded objects, with those that every cluster has, by name."""
    return {**BUILTIN_PRIORITY_CLASSES, **{one.name: one.value for one in found if one.kind == "PriorityClass"}}


def read_kind(one: FixtureObject) -> type | None:
    """Return the struct of a recorded object, nodes and pods aside; None where no rule reads its kind."""
    if one.kind == "PodGroup" and str(one.value["apiVersion"]).startswith(_COSCHEDULING_GROUP):
        return objects.CoschedulingPodGroup
    return _BY_KIND.get(one.kind)


def stored(one: FixtureObject, classes: PriorityClasses, *, scheduler: str) -> FixtureObject:
    """Return an object as the API server would store it.

    Args:
        one: the object as it was recorded or written.
        classes: the priority classes that there are.
        scheduler: the scheduler name of pods that name none.

    Raises:
        AdmissionError: the API server would refuse it.
        QuantityError: a quantity cannot be read.
    """
    value = without_nulls(one.value)
    settled: dict[str, Any] = {}
    if one.kind == "Pod":
        spec = {"schedulerName": scheduler} | (value.get("spec") or {})
        # a pod that says its priority comes from a cluster, or from a test: admission was before
        if spec.get("priority") is not None:
            settled = {key: spec[key] for key in _PRIORITY if key in spec}
        value = {**value, "spec": {key: item for key, item in spec.items() if key not in settled}}
    done = default_object(value, priority_classes=classes)
    if settled:
        done["spec"] |= settled
    return FixtureObject(done, one.document, one.path)


def taken_at(found: Iterable[FixtureObject]) -> float | None:
    """Return when the newest snapshot among recorded clusters was taken, Unix seconds; None where none says it."""
    documents = {id(one.document): one.document for one in found}
    moments = []
    for document in documents.values():
        metadata = document.value.get("metadata") if isinstance(document.value, dict) else None
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        told = annotations.get(TAKEN_AT) if isinstance(annotations, dict) else None
        moments.append(unix_seconds(told) if isinstance(told, str) else None)
    return max((moment for moment in moments if moment is not None), default=None)


def without_nulls(value: Any) -> Any:
    """Return an object without null members: an absent and a null field mean the same to the API."""
    if type(value) is dict:
        return {
            key: without_nulls(item) if type(item) in _COMPOSITE else item
            for key, item in value.items()
            if item is not None
        }
    if type(value) is list:
        return [without_nulls(item) if type(item) in _COMPOSITE else item for item in value]
    return value


_COMPOSITE = (dict, list)  # asked before the call: most values are texts, and there are millions of them
