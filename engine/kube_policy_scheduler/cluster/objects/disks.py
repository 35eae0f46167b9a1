"""The disks behind volumes, written into a pod or into a PersistentVolume."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects.structs import ApiStruct


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
    lun: int = 0  # iscsi
    monitors: list[str] | None = None  # rbd
    image: str = ""  # rbd
    pool: str = ""  # rbd
    read_only: bool | None = None
    partition: int = 0
    fs_type: str = ""


class CSIVolumeSource(ApiStruct):
    driver: str = ""
    volume_handle: str = ""
