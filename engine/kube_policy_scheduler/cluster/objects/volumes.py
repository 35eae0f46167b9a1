"""The volumes that a pod mounts."""

from __future__ import annotations

from kube_policy_scheduler.cluster.objects.claims import PersistentVolumeClaimSpec
from kube_policy_scheduler.cluster.objects.disks import DiskSource
from kube_policy_scheduler.cluster.objects.metadata import ObjectMeta
from kube_policy_scheduler.cluster.objects.structs import ApiStruct


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
