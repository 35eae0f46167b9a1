"""Claims for storage, and the volumes that fulfil them."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects.disks import CSIVolumeSource, DiskSource
from kube_policy_scheduler.cluster.objects.metadata import ObjectMeta, ObjectReference
from kube_policy_scheduler.cluster.objects.resources import ResourceRequirements
from kube_policy_scheduler.cluster.objects.selectors import LabelSelector, NodeSelector
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Resources


class PersistentVolumeClaimSpec(ApiStruct):
    access_modes: list[str] | None = None
    resources: ResourceRequirements | None = None
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(ApiStruct):
    phase: str = ""


class PersistentVolumeClaim(ApiStruct):
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class VolumeNodeAffinity(ApiStruct):
    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiStruct):
    capacity: Resources | None = None
    access_modes: list[str] | None = None
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: DiskSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    cinder: DiskSource | None = None
    portworx_volume: DiskSource | None = None
    vsphere_volume: DiskSource | None = None


class PersistentVolumeStatus(ApiStruct):
    phase: str = ""


class PersistentVolume(ApiStruct):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)
