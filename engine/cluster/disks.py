"""Disks that pods mount inline, and when two of them cannot be on one node.

Rules: VolumeRestrictions of kube-scheduler 1.36 (`isVolumeConflict`).
"""

from __future__ import annotations

from typing import NamedTuple

from engine.cluster import objects


class DiskKey(NamedTuple):
    """What two volumes must have in common to be the same disk."""

    kind: str
    name: str
    pool: str = ""


def disk_keys(volume: objects.Volume) -> tuple[DiskKey, ...]:
    """Return the disks that an inline volume may be in conflict about; none for most volumes."""
    keys = []
    if (gce := volume.gce_persistent_disk) is not None:
        keys.append(DiskKey("gce", gce.pd_name))
    if (ebs := volume.aws_elastic_block_store) is not None:
        keys.append(DiskKey("ebs", ebs.volume_id))
    if (iscsi := volume.iscsi) is not None:
        keys.append(DiskKey("iscsi", iscsi.iqn))
    if (rbd := volume.rbd) is not None:
        keys.append(DiskKey("rbd", rbd.image, rbd.pool))
    return tuple(keys)


def conflict(wanted: objects.Volume, used: objects.Volume) -> bool:
    """Return whether both volumes are one disk that they cannot share; most can be shared if both only read."""
    return (
        _same(wanted.gce_persistent_disk, used.gce_persistent_disk, "pd_name")
        or _same_ebs(wanted.aws_elastic_block_store, used.aws_elastic_block_store)
        or _same(wanted.iscsi, used.iscsi, "iqn")
        or _same_rbd(wanted.rbd, used.rbd)
    )


def _same(wanted: objects.DiskSource | None, used: objects.DiskSource | None, field: str) -> bool:
    if wanted is None or used is None or getattr(wanted, field) != getattr(used, field):
        return False
    return not (wanted.read_only and used.read_only)


def _same_ebs(wanted: objects.DiskSource | None, used: objects.DiskSource | None) -> bool:
    return wanted is not None and used is not None and wanted.volume_id == used.volume_id


def _same_rbd(wanted: objects.DiskSource | None, used: objects.DiskSource | None) -> bool:
    if wanted is None or used is None or (wanted.pool, wanted.image) != (used.pool, used.image):
        return False
    if set(wanted.monitors or ()).isdisjoint(used.monitors or ()):
        return False
    return not (wanted.read_only and used.read_only)
