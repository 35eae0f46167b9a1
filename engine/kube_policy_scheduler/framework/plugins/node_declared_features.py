"""NodeDeclaredFeatures: pods that need a feature of the kubelet are placed on nodes that declare it."""

from __future__ import annotations

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import BoolArray, NodeTable
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, PreFilterResult, Reads, Ready, Skip
from kube_policy_scheduler.framework.plugins.base import Filter

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
VOLUME_BIND_MOUNT_OPTIONS = "VolumeBindMountOptions"


class NodeDeclaredFeatures(Filter):
    """Rejects nodes whose `status.declaredFeatures` lack what the pod's spec implies."""

    name = "NodeDeclaredFeatures"
    default = Default(14)
    reads = Reads.SPEC
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_FEATURE})
    reason = "node(s) didn't match Pod's required features"

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Skip pods that need no feature."""
        template = frame.pod.template
        known: Ready | Skip | None = template.shape.get(self.name)
        if known is None:
            needed = needed_features(template.spec)
            known = template.shape[self.name] = Ready(needed, key=needed) if needed else SKIP
        return known

    def filter(self, frame: Frame, state: frozenset[str]) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        nodes = frame.cluster.nodes
        result = np.ones(frame.size, np.bool_)
        for feature in sorted(state):
            result &= _declaring(nodes, feature)[frame.rows]
        return result


def needed_features(spec: objects.PodSpec) -> frozenset[str]:
    """Return the features of a node that the pod's spec implies.

    A field of a feature is there only where the API server knows it, so versions do not matter. Ephemeral containers
    come when the pod runs, and need not be read.
    """
    needed = set()
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    rules = [rule for c in containers if c.restart_policy_rules for rule in c.restart_policy_rules]
    if any(mount.bind_mount_options for c in containers for mount in c.volume_mounts or ()):
        needed.add(VOLUME_BIND_MOUNT_OPTIONS)
    if rules and any(rule.action == "RestartAllContainers" for rule in rules):
        needed.add(RESTART_ALL_CONTAINERS)
    if spec.host_network and spec.host_users is False:
        needed.add(USER_NAMESPACES_HOST_NETWORK)
    return frozenset(needed)


def _declaring(nodes: NodeTable, feature: str) -> BoolArray:
    """Return `bool[nodes]`: the nodes that declare the feature."""
    return nodes.valued(
        ("declares", feature), lambda info: feature in (info.node.status.declared_features or ()), np.bool_
    )
