"""In-tree volumes as seen by the CSI drivers that replaced the plugins: driver, handle, and topology.

Facts: `k8s.io/csi-translation-lib` of Kubernetes 1.36. vSphere and Azure File have translations too, but
kube-scheduler never treats them as migrated, so they are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from kube_policy_scheduler.cluster import objects

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
"""Annotation of a CSINode: the in-tree plugins that the kubelet there hands to CSI drivers, comma separated."""

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_BETA_ZONE, _BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_MANY = "__"
"""Separates the zones in a label that names several."""
_UNSPECIFIED = "UNSPECIFIED"
_EBS_URL = r"(?a)aws://[^/?#]*/*(?P<volume>vol-[^/?#]*)/*(?:[?#].*)?"
_NOT_MIGRATED = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})

_Labels = Mapping[str, str]


class InTreePlugin(msgspec.Struct, frozen=True):
    """An in-tree volume plugin that a CSI driver has replaced."""

    name: str
    driver: str
    field: str
    """Name of the volume source, in volumes and persistent volumes alike."""
    handle: Callable[[objects.DiskSource, _Labels], str | None]
    """Return the CSI volume handle given the source and the volume's labels; None if it is not valid."""
    topology_key: str = ""
    """The driver's label for zones on nodes; "" if zones are not translated."""


def _ebs(source: objects.DiskSource, labels: _Labels) -> str | None:
    if not source.volume_id.startswith("aws://"):
        return source.volume_id
    found = re.fullmatch(_EBS_URL, source.volume_id)
    return found["volume"] if found else None


def _gce(source: objects.DiskSource, labels: _Labels) -> str | None:
    zones = (labels.get(_BETA_ZONE) or labels.get(_ZONE, "")).split(_MANY)
    if len(zones) == 1:
        return f"projects/{_UNSPECIFIED}/zones/{zones[0] or _UNSPECIFIED}/disks/{source.pd_name}"
    parts = [zone.split("-") for zone in zones]
    regions = {"-".join(part[:2]) for part in parts}
    if len(regions) != 1 or any(len(part) != 3 for part in parts):
        return None
    return f"projects/{_UNSPECIFIED}/regions/{regions.pop()}/disks/{source.pd_name}"


def _azure(source: objects.DiskSource, labels: _Labels) -> str | None:
    return source.disk_uri if source.kind.lower() in ("", "managed") else None


def _volume_id(source: objects.DiskSource, labels: _Labels) -> str | None:
    return source.volume_id


PLUGINS: Sequence[InTreePlugin] = (
    InTreePlugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce_persistent_disk", _gce, "topology.gke.io/zone"),
    InTreePlugin(
        "kubernetes.io/aws-ebs",
        "ebs.csi.aws.com",
        "aws_elastic_block_store",
        _ebs,
        "topology.ebs.csi.aws.com/zone",
    ),
    InTreePlugin(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "cinder",
        _volume_id,
        "topology.cinder.csi.openstack.org/zone",
    ),
    InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk", _azure),
    InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume", _volume_id),
)
_BY_NAME: Mapping[str, InTreePlugin] = {plugin.name: plugin for plugin in PLUGINS}


def in_tree_plugin(source: objects.Volume | objects.PersistentVolumeSpec) -> InTreePlugin | None:
    """Return the replaced plugin that a volume belongs to, None for any other volume."""
    for plugin in PLUGINS:
        if getattr(source, plugin.field) is not None:
            return plugin
    return None


def provisioning_driver(provisioner: str) -> str | None:
    """Return the CSI driver that serves a provisioner; None for plugins that are not treated as migrated."""
    if provisioner in _NOT_MIGRATED:
        return None
    plugin = _BY_NAME.get(provisioner)
    return plugin.driver if plugin is not None else provisioner


def volume_handle(
    plugin: InTreePlugin, source: objects.Volume | objects.PersistentVolumeSpec, labels: _Labels | None
) -> str | None:
    """Return the CSI handle of an in-tree volume, None if its own identifier is not valid."""
    disk: objects.DiskSource = getattr(source, plugin.field)
    return plugin.handle(disk, labels or {})


def migrated_plugins(node: objects.CSINode | None) -> frozenset[str]:
    """Return the names of the in-tree plugins that are migrated on a node."""
    annotations = node.metadata.annotations if node is not None else None
    return frozenset((annotations or {}).get(MIGRATED_PLUGINS, "").split(",")) - {""}


def migrated_affinity(plugin: InTreePlugin, volume: objects.PersistentVolume) -> objects.NodeSelector | None:
    """Return a volume's node affinity in the terms of its CSI driver: zones under the driver's own label."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
    if not plugin.topology_key:
        return required
    labels = volume.metadata.labels or {}
    beta = _uses_beta_labels(required, labels)
    zone, region = (_BETA_ZONE, _BETA_REGION) if beta else (_ZONE, _REGION)
    renamed = {}
    if _values(required, zone):
        renamed[zone] = plugin.topology_key
    if beta and _values(required, region):
        renamed[region] = _REGION
    zones = sorted({name.strip() for name in labels.get(zone, "").split(_MANY)} - {""})
    terms = list((required.node_selector_terms if required is not None else None) or ())
    if zone not in renamed and zones:
        extra = [objects.Requirement(key=plugin.topology_key, operator="In", values=zones)]
        terms = terms or [objects.NodeSelectorTerm()]
    elif required is None:
        return None
    else:
        extra = []
    return objects.NodeSelector(
        node_selector_terms=[
            objects.NodeSelectorTerm(
                match_expressions=[
                    objects.Requirement(key=renamed.get(r.key, r.key), operator=r.operator, values=r.values)
                    for r in term.match_expressions or ()
                ]
                + extra,
                match_fields=term.match_fields,
            )
            for term in terms
        ]
    )


def _uses_beta_labels(required: objects.NodeSelector | None, labels: _Labels) -> bool:
    """Return whether the volume's topology uses the old labels; its affinity decides before its labels."""
    keys = {requirement.key for requirement in _requirements(required)}
    for names in (keys, labels.keys()):
        if _ZONE in names:
            return False
        if _BETA_ZONE in names:
            return True
    return False


def _values(required: objects.NodeSelector | None, key: str) -> set[str]:
    return {value for r in _requirements(required) if r.key == key for value in r.values or ()}


def _requirements(required: objects.NodeSelector | None) -> Iterator[objects.Requirement]:
    for term in (required.node_selector_terms if required is not None else None) or ():
        yield from term.match_expressions or ()
