"""What is written for consumers of decisions: PlacementDecisions of `multicluster.x-k8s.io`."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.cluster.objects.structs import ApiStruct


class ProfileRef(ApiStruct):
    """Names a ClusterProfile."""

    name: str = ""
    namespace: str = ""


class ProfileChoice(ApiStruct):
    """A cluster that was chosen."""

    cluster_profile_ref: ProfileRef = field(default_factory=ProfileRef)


class ProfileDecision(ApiStruct):
    """A PlacementDecision: some of the clusters that were chosen."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    decisions: list[ProfileChoice] | None = None
    scheduler_name: str = ""
