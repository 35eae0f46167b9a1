"""Disks that pods mount inline, and when two of them cannot be on one node.

Rules: VolumeRestrictions of kube-scheduler 1.36 (`isVolumeConflict`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from kube_policy_scheduler.cluster import objects


class DiskKey(NamedTuple):
    """What two volumes must have in common to be the same disk."""

    kind: str
    name: str
    pool: str = ""


class DiskUse(msgspec.Struct, frozen=True):
    """How a pod uses one disk: the places from which it reads it, and from which it writes it.

    Disks other than rbd's have one place.
    """

    all: frozenset[str] = frozenset()
    """The monitors of an rbd image; one place for all others."""
    writing: frozenset[str] = frozenset()

    def conflicts(self, other: DiskUse) -> bool:
        """Return whether two pods cannot share the disk; most can be shared if both only read."""
        return not (self.writing.isdisjoint(other.all) and self.all.isdisjoint(other.writing))

    def joined(self, other: DiskUse) -> DiskUse:
        """Return the use by two volumes of one pod."""
        return DiskUse(self.all | other.all, self.writing | other.writing)


_ONE_PLACE = frozenset(("",))


def disk_uses(volumes: Iterable[objects.Volume]) -> dict[DiskKey, DiskUse]:
    """Return the disks on which a pod's inline volumes may conflict, and how it uses each."""
    found: dict[DiskKey, DiskUse] = {}
    for volume in volumes:
        for key, use in _uses(volume):
            known = found.get(key)
            found[key] = use if known is None or known == use else known.joined(use)
    return found


def _uses(volume: objects.Volume) -> Iterator[tuple[DiskKey, DiskUse]]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield DiskKey("gce", gce.pd_name), _use(_ONE_PLACE, gce)
    if (ebs := volume.aws_elastic_block_store) is not None:
        yield DiskKey("ebs", ebs.volume_id), DiskUse(_ONE_PLACE, _ONE_PLACE)
    if (iscsi := volume.iscsi) is not None:
        yield DiskKey("iscsi", iscsi.iqn), _use(_ONE_PLACE, iscsi)
    if (rbd := volume.rbd) is not None:
        yield DiskKey("rbd", rbd.image, rbd.pool), _use(frozenset(rbd.monitors or ()), rbd)


def _use(places: frozenset[str], disk: objects.DiskSource) -> DiskUse:
    return DiskUse(places, frozenset() if disk.read_only else places)
