"""What a snapshot keeps of each object: an allow-list, because what is not on it can't leak.

The structs of `cluster.objects` are the list: they hold what some rule reads, so environment, commands, probes,
secrets and configuration never get here. Of what they hold, this takes away the free texts: annotations that no rule
reads, messages of conditions, and what only a client writing to the API server needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.node_devices import ANNOTATION as DEVICES
from kube_policy_scheduler.cluster.object_store import BETA_CLASS
from kube_policy_scheduler.cluster.pods import is_local
from kube_policy_scheduler.cluster.prices import PRICE_KEY
from kube_policy_scheduler.cluster.volumes.claims import BIND_COMPLETED, SELECTED_NODE
from kube_policy_scheduler.cluster.volumes.csi_migration import MIGRATED_PLUGINS
from kube_policy_scheduler.tooling.staying import IN_PLACE, safe_volumes

Json: TypeAlias = dict[str, Any]

API_VERSIONS: Mapping[type, str] = {
    objects.Node: "v1",
    objects.Pod: "v1",
    objects.Namespace: "v1",
    objects.Service: "v1",
    objects.ReplicationController: "v1",
    objects.PersistentVolume: "v1",
    objects.PersistentVolumeClaim: "v1",
    objects.ReplicaSet: "apps/v1",
    objects.StatefulSet: "apps/v1",
    objects.PodDisruptionBudget: "policy/v1",
    objects.PriorityClass: "scheduling.k8s.io/v1",
    objects.StorageClass: "storage.k8s.io/v1",
    objects.CSINode: "storage.k8s.io/v1",
    objects.CSIDriver: "storage.k8s.io/v1",
    objects.CSIStorageCapacity: "storage.k8s.io/v1",
    objects.VolumeAttachment: "storage.k8s.io/v1",
    objects.DeviceClass: "resource.k8s.io/v1",
    objects.ResourceSlice: "resource.k8s.io/v1",
    objects.DeviceTaintRule: "resource.k8s.io/v1",
    objects.ResourceClaim: "resource.k8s.io/v1",
    objects.ResourceClaimTemplate: "resource.k8s.io/v1",
    objects.PodGroup: "scheduling.k8s.io/v1alpha2",
    objects.CompositePodGroup: "scheduling.k8s.io/v1alpha3",
    objects.CoschedulingPodGroup: "scheduling.x-k8s.io/v1alpha1",
    objects.NodeResourceTopology: "topology.node.k8s.io/v1alpha2",
}
"""Every kind that a snapshot holds."""
RULES_ANNOTATIONS = (
    frozenset({BIND_COMPLETED, SELECTED_NODE, MIGRATED_PLUGINS, BETA_CLASS, DEVICES, PRICE_KEY}) | IN_PLACE
)
"""Annotations that the scheduler and its tools read whatever the policies say."""

WRITERS = ("resourceVersion", "generation", "finalizers")
"""Of metadata: only clients that write to the API server need them."""


def recorded_objects(things: Iterable[Any], *, annotations: Collection[str] = ()) -> list[Json]:
    """Return objects as in a fixture file, in the given order.

    Args:
        things: structs of `cluster.objects`.
        annotations: keys of annotations to keep beside those that Kubernetes' own rules read.
    """
    kept = RULES_ANNOTATIONS | frozenset(annotations)
    return [_recorded(thing, kept) for thing in things]


def _recorded(thing: Any, annotations: frozenset[str]) -> Json:
    made: Json = msgspec.to_builtins(thing)
    metadata = made["metadata"]
    for key in WRITERS:
        metadata.pop(key, None)
    keep_annotations(metadata, annotations)
    if isinstance(thing, objects.Pod):
        _reduce_pod(made, thing, annotations)
    elif isinstance(thing, _OF_DEVICES):
        _drop_driver_data(made)
    elif isinstance(thing, objects.Node):
        spec = made.get("spec", {})
        scheme, found, _ = spec.pop("providerID", "").partition("://")
        if found and scheme:
            spec["providerID"] = f"{scheme}://"  # the rest names zone and machine
    kind = type(thing).__name__.removeprefix("Coscheduling")
    return {"apiVersion": API_VERSIONS[type(thing)], "kind": kind, **made}


_OF_DEVICES = (objects.DeviceClass, objects.ResourceClaim, objects.ResourceClaimTemplate)


def _drop_driver_data(value: Any) -> None:
    """Remove opaque parameters and data of drivers wherever they are: they may contain secrets."""
    if isinstance(value, dict):
        if "opaque" in value:
            value["opaque"].pop("parameters", None)
        for key in ("data", "networkData"):
            value.pop(key, None)
        for condition in value.get("conditions") or ():
            condition.pop("message", None)
        for item in value.values():
            _drop_driver_data(item)
    elif isinstance(value, list):
        for item in value:
            _drop_driver_data(item)


def _reduce_pod(made: Json, pod: objects.Pod, annotations: frozenset[str]) -> None:
    spec = made.setdefault("spec", {})
    # the struct's default is left out when it is written, and a reader takes its absence for "of the policies"
    spec["schedulerName"] = pod.spec.scheduler_name
    volumes = [volume for volume in spec.get("volumes") or () if volume.keys() - {"name", "emptyDir", "hostPath"}]
    # that there is local storage keeps a pod on its node; what it is called matters to nobody
    safe = safe_volumes(pod.metadata.annotations or {})
    local = [volume for volume in pod.spec.volumes or () if is_local(volume) and volume.name not in safe]
    volumes += [
        {"name": f"local-{number}", ("hostPath" if volume.host_path is not None else "emptyDir"): {}}
        for number, volume in enumerate(local, 1)
    ]
    if volumes:
        spec["volumes"] = volumes
    else:
        spec.pop("volumes", None)  # secrets and config maps: no rule reads them
    for volume in volumes:
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
        keep_annotations(template.get("metadata") or {}, annotations)
    status = made.get("status", {})
    for condition in status.get("conditions") or ():
        condition.pop("message", None)
    for name in ("containerStatuses", "initContainerStatuses"):
        kept = [one for one in status.get(name) or () if one.keys() > {"name"}]
        status.pop(name, None)
        if kept:
            status[name] = kept


def keep_annotations(metadata: Json, kept: Collection[str]) -> None:
    """Take all other annotations away."""
    found = metadata.pop("annotations", None) or {}
    left = {key: value for key, value in found.items() if key in kept}
    if left:
        metadata["annotations"] = left
