"""Kueue's API objects as structs that hold only what a nomination reads."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.cluster.objects.pods import PodSpec
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Int32


class KueueCondition(ApiStruct):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class PodSetTemplate(ApiStruct):
    spec: PodSpec = field(default_factory=PodSpec)


class PodSet(ApiStruct):
    name: str = ""
    count: Int32 = 0
    template: PodSetTemplate = field(default_factory=PodSetTemplate)


class PriorityClassReference(ApiStruct):
    name: str = ""


class WorkloadSpec(ApiStruct):
    pod_sets: list[PodSet] | None = None
    queue_name: str = ""
    priority: Int32 | None = None
    priority_class_ref: PriorityClassReference | None = None
    active: bool | None = None


class AdmissionCheckState(ApiStruct):
    name: str = ""
    state: str = ""
    """Pending, Ready, Retry or Rejected."""


class WorkloadStatus(ApiStruct):
    conditions: list[KueueCondition] | None = None
    admission_checks: list[AdmissionCheckState] | None = None
    cluster_name: str | None = None
    nominated_cluster_names: list[str] | None = None


class KueueWorkload(ApiStruct):
    """A Workload of `kueue.x-k8s.io`: a job that waits for its quota, or has it."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)
    status: WorkloadStatus = field(default_factory=WorkloadStatus)


class CheckParameters(ApiStruct):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class AdmissionCheckSpec(ApiStruct):
    controller_name: str = ""
    parameters: CheckParameters | None = None


class AdmissionCheck(ApiStruct):
    """What must be Ready before a Workload is admitted; that of MultiKueue names its configuration."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: AdmissionCheckSpec = field(default_factory=AdmissionCheckSpec)


class MultiKueueConfigSpec(ApiStruct):
    clusters: list[str] | None = None


class MultiKueueConfig(ApiStruct):
    """The worker clusters of an admission check."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: MultiKueueConfigSpec = field(default_factory=MultiKueueConfigSpec)


class MultiKueueClusterStatus(ApiStruct):
    conditions: list[KueueCondition] | None = None


class ProfileReference(ApiStruct):
    name: str = ""


class ClusterSource(ApiStruct):
    cluster_profile_ref: ProfileReference | None = None


class MultiKueueClusterSpec(ApiStruct):
    cluster_source: ClusterSource = field(default_factory=ClusterSource)


class MultiKueueCluster(ApiStruct):
    """A worker cluster."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: MultiKueueClusterSpec = field(default_factory=MultiKueueClusterSpec)
    status: MultiKueueClusterStatus = field(default_factory=MultiKueueClusterStatus)
