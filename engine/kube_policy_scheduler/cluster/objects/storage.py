"""Where storage can be had: classes, CSI drivers, their capacity, and what is attached to nodes."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects.metadata import ObjectMeta
from kube_policy_scheduler.cluster.objects.selectors import LabelSelector
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Quantity


class TopologySelectorRequirement(ApiStruct):
    key: str = ""
    values: list[str] | None = None


class TopologySelectorTerm(ApiStruct):
    match_label_expressions: list[TopologySelectorRequirement] | None = None


class StorageClass(ApiStruct):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] | None = None


class VolumeNodeResources(ApiStruct):
    count: int | None = None


class CSINodeDriver(ApiStruct):
    name: str = ""
    node_id: str = field(default="", name="nodeID")
    topology_keys: list[str] | None = None
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiStruct):
    drivers: list[CSINodeDriver] | None = None


class CSINode(ApiStruct):
    metadata: ObjectMeta
    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


class CSIDriverSpec(ApiStruct):
    storage_capacity: bool | None = None
    attach_required: bool | None = None


class CSIDriver(ApiStruct):
    metadata: ObjectMeta
    spec: CSIDriverSpec = field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(ApiStruct):
    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(ApiStruct):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiStruct):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(ApiStruct):
    metadata: ObjectMeta
    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)
