"""kube-scheduler's default profile: its filters in their order, its scores with their weights (Kubernetes 1.36).

And one rule more, DeviceShares, which has something to say only where pods want shares of devices.
"""

from __future__ import annotations

from engine.framework.plugin import FilterPlugin, Weighted
from engine.framework.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from engine.framework.plugins.device_shares import DeviceShares
from engine.framework.plugins.dynamic_resources import DynamicResources
from engine.framework.plugins.image_locality import ImageLocality
from engine.framework.plugins.inter_pod_affinity import InterPodAffinity
from engine.framework.plugins.node_affinity import NodeAffinity
from engine.framework.plugins.node_declared_features import NodeDeclaredFeatures
from engine.framework.plugins.node_name import NodeName
from engine.framework.plugins.node_ports import NodePorts
from engine.framework.plugins.node_resources_fit import NodeResourcesFit
from engine.framework.plugins.node_unschedulable import NodeUnschedulable
from engine.framework.plugins.node_volume_limits import NodeVolumeLimits
from engine.framework.plugins.pod_topology_spread import PodTopologySpread
from engine.framework.plugins.resource_scores import LeastAllocated
from engine.framework.plugins.taint_toleration import TaintToleration
from engine.framework.plugins.volume_binding import VolumeBinding
from engine.framework.plugins.volume_restrictions import VolumeRestrictions
from engine.framework.plugins.volume_zone import VolumeZone
from engine.framework.profile import Profile

DEFAULT_PROFILE_NAME = "kubernetes"


def kubernetes_filters() -> tuple[FilterPlugin, ...]:
    """Return kube-scheduler's default filters in the order in which they are asked, and then DeviceShares."""
    return (
        NodeUnschedulable(),
        NodeName(),
        TaintToleration(),
        NodeAffinity(),
        NodePorts(),
        NodeResourcesFit(),
        VolumeRestrictions(),
        NodeVolumeLimits(),
        VolumeBinding(),
        VolumeZone(),
        PodTopologySpread(),
        InterPodAffinity(),
        DynamicResources(),
        NodeDeclaredFeatures(),
        DeviceShares(),
    )


def kubernetes_scores() -> tuple[Weighted, ...]:
    """Return kube-scheduler's default scores with their weights."""
    return (
        Weighted(TaintToleration(), 3),
        Weighted(NodeAffinity(), 2),
        Weighted(LeastAllocated(), 1),
        Weighted(PodTopologySpread(), 2),
        Weighted(InterPodAffinity(), 2),
        Weighted(DynamicResources(), 2),
        Weighted(NodeResourcesBalancedAllocation(), 1),
        Weighted(ImageLocality(), 1),
    )


def kubernetes_profile(name: str = DEFAULT_PROFILE_NAME) -> Profile:
    """Return the profile of a scheduler without policies."""
    return Profile(name, kubernetes_filters(), kubernetes_scores())
