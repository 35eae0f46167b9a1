"""Pods: what they run and ask for, and how they are."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects.affinity import Affinity, Toleration, TopologySpreadConstraint
from kube_policy_scheduler.cluster.objects.metadata import ObjectMeta
from kube_policy_scheduler.cluster.objects.resources import ResourceRequirements
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Labels, Resources
from kube_policy_scheduler.cluster.objects.volumes import Volume


class ContainerPort(ApiStruct):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class ContainerRestartRule(ApiStruct):
    action: str = ""


class Container(ApiStruct):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None


class SchedulingGate(ApiStruct):
    name: str = ""


class PodResourceClaim(ApiStruct):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(ApiStruct):
    pod_group_name: str = ""


class PodSpec(ApiStruct):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    service_account_name: str = ""
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    overhead: Resources | None = None
    resources: ResourceRequirements | None = None
    host_network: bool = False
    host_users: bool | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    scheduling_group: PodSchedulingGroup | None = None


class ContainerStatus(ApiStruct):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Resources | None = None


class PodCondition(ApiStruct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodResourceClaimStatus(ApiStruct):
    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(ApiStruct):
    phase: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    qos_class: str = ""
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: Resources | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None


class Pod(ApiStruct):
    metadata: ObjectMeta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)
