"""OCM's API objects as structs that hold only what scores and decisions read."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects import LabelSelector, ObjectMeta
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Int32, Requirement, Resources


class ManagedClusterTaint(ApiStruct):
    key: str = ""
    value: str = ""
    effect: str = ""
    """NoSelect, NoSelectIfNew or PreferNoSelect."""
    time_added: str | None = None


class ManagedClusterSpec(ApiStruct):
    taints: list[ManagedClusterTaint] | None = None


class ManagedClusterCondition(ApiStruct):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class ManagedClusterClaim(ApiStruct):
    name: str = ""
    value: str = ""


class ManagedClusterVersion(ApiStruct):
    kubernetes: str = ""


class ManagedClusterStatus(ApiStruct):
    conditions: list[ManagedClusterCondition] | None = None
    allocatable: Resources | None = None
    version: ManagedClusterVersion = field(default_factory=ManagedClusterVersion)
    cluster_claims: list[ManagedClusterClaim] | None = None


class ManagedCluster(ApiStruct):
    """A cluster that is registered at a hub."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ManagedClusterSpec = field(default_factory=ManagedClusterSpec)
    status: ManagedClusterStatus = field(default_factory=ManagedClusterStatus)


class ClusterSetSelector(ApiStruct):
    selector_type: str = ""
    """ExclusiveClusterSetLabel (also if empty), or LabelSelector."""
    label_selector: LabelSelector | None = None


class ManagedClusterSetSpec(ApiStruct):
    cluster_selector: ClusterSetSelector = field(default_factory=ClusterSetSelector)


class ManagedClusterSet(ApiStruct):
    """Managed clusters that are given to namespaces together."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ManagedClusterSetSpec = field(default_factory=ManagedClusterSetSpec)


class ManagedClusterSetBinding(ApiStruct):
    """Gives a cluster set to a namespace; it is named like the set."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class ClaimSelector(ApiStruct):
    match_expressions: list[Requirement] | None = None


class CelSelector(ApiStruct):
    cel_expressions: list[str] | None = None


class ClusterSelector(ApiStruct):
    """Which clusters; all parts must match."""

    label_selector: LabelSelector | None = None
    claim_selector: ClaimSelector | None = None
    cel_selector: CelSelector | None = None


class ClusterPredicate(ApiStruct):
    required_cluster_selector: ClusterSelector = field(default_factory=ClusterSelector)


class PlacementToleration(ApiStruct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None
    """After the taint was added; None: for ever."""


class DecisionGroup(ApiStruct):
    group_name: str = ""
    group_cluster_selector: ClusterSelector = field(default_factory=ClusterSelector)


class GroupStrategy(ApiStruct):
    decision_groups: list[DecisionGroup] | None = None
    clusters_per_decision_group: int | str | None = None
    """A number, or a share such as 25%; None: all."""


class DecisionStrategy(ApiStruct):
    group_strategy: GroupStrategy = field(default_factory=GroupStrategy)


class PlacementSpec(ApiStruct):
    cluster_sets: list[str] | None = None
    number_of_clusters: Int32 | None = None
    predicates: list[ClusterPredicate] | None = None
    tolerations: list[PlacementToleration] | None = None
    decision_strategy: DecisionStrategy = field(default_factory=DecisionStrategy)


class PlacementCondition(ApiStruct, omit_defaults=True):
    type: str = ""
    status: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class DecisionGroupStatus(ApiStruct):
    decision_group_index: Int32 = 0
    decision_group_name: str = ""
    decisions: list[str] | None = None
    cluster_count: Int32 = 0


class PlacementStatus(ApiStruct):
    number_of_selected_clusters: Int32 = 0
    decision_groups: list[DecisionGroupStatus] | None = None
    conditions: list[PlacementCondition] | None = None


class ClusterPlacement(ApiStruct):
    """A Placement of OCM: which managed clusters somebody asks for."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PlacementSpec = field(default_factory=PlacementSpec)
    status: PlacementStatus = field(default_factory=PlacementStatus)


class ClusterDecision(ApiStruct):
    cluster_name: str = ""
    reason: str = ""


class PlacementDecisionStatus(ApiStruct):
    decisions: list[ClusterDecision] | None = None


class PlacementDecision(ApiStruct):
    """Some of the clusters that a Placement selected."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: PlacementDecisionStatus = field(default_factory=PlacementDecisionStatus)
