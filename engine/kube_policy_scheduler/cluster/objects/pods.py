"""Pods, with what they require of nodes and of other pods."""

from msgspec import field

from kube_policy_scheduler.cluster.objects.storage import Volume
from kube_policy_scheduler.cluster.objects.structs import (
    ApiStruct,
    Int32,
    Labels,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    ResourceRequirements,
    Resources,
)


class Toleration(ApiStruct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class PreferredSchedulingTerm(ApiStruct):
    weight: Int32 = 0
    preference: NodeSelectorTerm | None = None


class NodeAffinity(ApiStruct):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(ApiStruct):
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(ApiStruct):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm | None = None


class PodAffinity(ApiStruct):
    """Both `podAffinity` and `podAntiAffinity`: they have the same shape."""

    required: list[PodAffinityTerm] | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[WeightedPodAffinityTerm] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiStruct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ContainerPort(ApiStruct):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class ContainerRestartRule(ApiStruct):
    action: str = ""


class VolumeMount(ApiStruct):
    bind_mount_options: list[str] | None = None


class Container(ApiStruct):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None


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
    runtime_class_name: str = ""
    priority: Int32 | None = None
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


class ContainerStateTerminated(ApiStruct):
    exit_code: Int32 = 0


class ContainerState(ApiStruct):
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(ApiStruct):
    name: str = ""
    started: bool | None = None
    restart_count: Int32 = 0
    state: ContainerState | None = None
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


def restarts_of(pod: Pod) -> int:
    """Return the restarts of containers and sidecars, as `kubectl get pods` counts those of a pod that runs."""
    status = pod.status
    total = 0
    for each in status.container_statuses or ():  # a generator takes three times as long for one
        total += each.restart_count
    if status.init_container_statuses:
        sidecars = {each.name for each in pod.spec.init_containers or () if each.restart_policy == "Always"}
        total += sum(each.restart_count for each in status.init_container_statuses if each.name in sidecars)
    return total
