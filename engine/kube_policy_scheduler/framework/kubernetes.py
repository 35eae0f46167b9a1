"""kube-scheduler's default profile: its filters in their order, its scores with their weights (Kubernetes 1.36).

And one rule more, DeviceShares, which has something to say only where pods want shares of devices.
"""

from __future__ import annotations

from kube_policy_scheduler.framework.plugin import FilterPlugin, Weighted
from kube_policy_scheduler.framework.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kube_policy_scheduler.framework.plugins.device_shares import DeviceShares
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.framework.plugins.image_locality import ImageLocality
from kube_policy_scheduler.framework.plugins.inter_pod_affinity import InterPodAffinity
from kube_policy_scheduler.framework.plugins.node_affinity import NodeAffinity
from kube_policy_scheduler.framework.plugins.node_declared_features import NodeDeclaredFeatures
from kube_policy_scheduler.framework.plugins.node_name import NodeName
from kube_policy_scheduler.framework.plugins.node_ports import NodePorts
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.plugins.node_unschedulable import NodeUnschedulable
from kube_policy_scheduler.framework.plugins.node_volume_limits import NodeVolumeLimits
from kube_policy_scheduler.framework.plugins.pod_topology_spread import PodTopologySpread
from kube_policy_scheduler.framework.plugins.resource_scores import LeastAllocated
from kube_policy_scheduler.framework.plugins.taint_toleration import TaintToleration
from kube_policy_scheduler.framework.plugins.volume_binding import VolumeBinding
from kube_policy_scheduler.framework.plugins.volume_restrictions import VolumeRestrictions
from kube_policy_scheduler.framework.plugins.volume_zone import VolumeZone
from kube_policy_scheduler.framework.profile import Profile

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
