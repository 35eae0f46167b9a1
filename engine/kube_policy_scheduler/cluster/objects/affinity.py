"""Where a pod wants to be: beside which nodes and pods, tolerating which taints, spread how."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects.selectors import LabelSelector, NodeSelector, NodeSelectorTerm
from kube_policy_scheduler.cluster.objects.structs import ApiStruct


class Toleration(ApiStruct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class PreferredSchedulingTerm(ApiStruct):
    weight: int = 0
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
    weight: int = 0
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
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None
