"""What owns pods, selects them or ranks them: namespaces, controllers, disruption budgets, priority classes."""

from __future__ import annotations

from typing import Any

from msgspec import field

from kube_policy_scheduler.cluster.objects.metadata import ObjectMeta
from kube_policy_scheduler.cluster.objects.selectors import LabelSelector
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Labels


class Namespace(ApiStruct):
    metadata: ObjectMeta


class ServiceSpec(ApiStruct):
    selector: Labels | None = None


class Service(ApiStruct):
    metadata: ObjectMeta
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class ReplicationControllerSpec(ApiStruct):
    selector: Labels | None = None


class ReplicationController(ApiStruct):
    metadata: ObjectMeta
    spec: ReplicationControllerSpec = field(default_factory=ReplicationControllerSpec)


class WorkloadSpec(ApiStruct):
    selector: LabelSelector | None = None


class ReplicaSet(ApiStruct):
    metadata: ObjectMeta
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class StatefulSet(ApiStruct):
    metadata: ObjectMeta
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class PodDisruptionBudgetSpec(ApiStruct):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(ApiStruct):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class PodDisruptionBudget(ApiStruct):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class PriorityClass(ApiStruct):
    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None
