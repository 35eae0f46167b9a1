"""Nodes: what they offer, their taints and their state."""

from msgspec import field

from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Int64, ObjectMeta, Resources
from kube_policy_scheduler.quantities.quantity import Quantity


class Taint(ApiStruct):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodePodPreemptionPolicy(ApiStruct):
    disable_resize_preemption: list[str] | None = None


class NodeSpec(ApiStruct):
    unschedulable: bool = False
    taints: list[Taint] | None = None
    provider_id: str = field(default="", name="providerID")
    pod_preemption_policy: NodePodPreemptionPolicy | None = None

    @property
    def disables_resize_preemption(self) -> bool:
        """Return whether pods must not be evicted so that others can grow in place (alpha in 1.37)."""
        policy = self.pod_preemption_policy
        return policy is not None and bool(policy.disable_resize_preemption)


class NodeCondition(ApiStruct):
    """Without its heartbeat times: a heartbeat is not a change."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class ContainerImage(ApiStruct):
    names: list[str] | None = None
    size_bytes: Int64 = 0


class NodeAddress(ApiStruct):
    type: str = ""
    address: str = ""


class NodeSystemInfo(ApiStruct):
    architecture: str = ""
    operating_system: str = ""
    kernel_version: str = ""
    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(ApiStruct):
    capacity: Resources | None = None
    allocatable: Resources | None = None
    conditions: list[NodeCondition] | None = None
    images: list[ContainerImage] | None = None
    addresses: list[NodeAddress] | None = None
    node_info: NodeSystemInfo | None = None
    declared_features: list[str] | None = None


class ZoneResource(ApiStruct):
    name: str = ""
    capacity: Quantity | None = None
    allocatable: Quantity | None = None
    available: Quantity | None = None


class TopologyZone(ApiStruct):
    name: str = ""
    type: str = ""
    resources: list[ZoneResource] | None = None


class TopologyAttribute(ApiStruct):
    name: str = ""
    value: str = ""


class NodeResourceTopology(ApiStruct):
    """topology.node.k8s.io/v1alpha2, a CustomResourceDefinition; it has the name of its node."""

    metadata: ObjectMeta
    zones: list[TopologyZone] | None = None
    attributes: list[TopologyAttribute] | None = None
    topology_policies: list[str] | None = None
    """What older exporters write instead of the attributes, such as `SingleNUMANodePodLevel`."""


class Node(ApiStruct):
    metadata: ObjectMeta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)
