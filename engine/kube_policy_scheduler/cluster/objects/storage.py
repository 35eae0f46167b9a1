"""Volumes and the objects that they refer to: disks, claims, PersistentVolumes, storage classes and CSI drivers."""

from msgspec import field

from kube_policy_scheduler.cluster.objects.structs import (
    ApiStruct,
    Int32,
    LabelSelector,
    NodeSelector,
    ObjectMeta,
    ObjectReference,
    ResourceRequirements,
    Resources,
)
from kube_policy_scheduler.quantities.quantity import Quantity


class DiskSource(ApiStruct):
    """Inline volumes that can conflict or count: each kind uses some of these fields."""

    pd_name: str = ""  # gcePersistentDisk
    volume_id: str = field(default="", name="volumeID")  # awsElasticBlockStore, cinder, portworx
    disk_name: str = ""  # azureDisk
    disk_uri: str = field(default="", name="diskURI")  # azureDisk
    kind: str = ""  # azureDisk
    volume_path: str = ""  # vsphereVolume
    iqn: str = ""  # iscsi
    target_portal: str = ""  # iscsi
    lun: Int32 = 0  # iscsi
    monitors: list[str] | None = None  # rbd
    image: str = ""  # rbd
    pool: str = ""  # rbd
    read_only: bool | None = None
    partition: Int32 = 0
    fs_type: str = ""


class CSIVolumeSource(ApiStruct):
    driver: str = ""
    volume_handle: str = ""


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


class ClaimSource(ApiStruct):
    claim_name: str = ""
    read_only: bool = False


class ImageSource(ApiStruct):
    reference: str = ""


class PersistentVolumeClaimTemplate(ApiStruct):
    metadata: ObjectMeta | None = None
    spec: PersistentVolumeClaimSpec | None = None


class EphemeralSource(ApiStruct):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class EmptyDirSource(ApiStruct):
    medium: str = ""


class HostPathSource(ApiStruct):
    """The path is not kept: no rule reads it."""


class Volume(ApiStruct):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    image: ImageSource | None = None
    gce_persistent_disk: DiskSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    cinder: DiskSource | None = None
    portworx_volume: DiskSource | None = None
    vsphere_volume: DiskSource | None = None
    iscsi: DiskSource | None = None
    rbd: DiskSource | None = None
    empty_dir: EmptyDirSource | None = None
    host_path: HostPathSource | None = None


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
    count: Int32 | None = None


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
    prevent_pod_scheduling_if_missing: bool | None = None


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
