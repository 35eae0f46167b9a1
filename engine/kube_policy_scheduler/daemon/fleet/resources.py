"""The resources that are watched and written for Kueue and OCM, and which one a binding of Karmada is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kube_policy_scheduler.adapters.kube.karmada_resources import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from kube_policy_scheduler.adapters.kube.resources import Read, Resource
from kube_policy_scheduler.fleet.cluster_profile import ClusterProfile
from kube_policy_scheduler.fleet.karmada.objects import ClusterResourceBinding, ResourceBinding
from kube_policy_scheduler.fleet.multikueue.objects import (
    AdmissionCheck,
    KueueWorkload,
    MultiKueueCluster,
    MultiKueueConfig,
)
from kube_policy_scheduler.fleet.ocm.objects import ManagedCluster

OCM_GROUP = "cluster.open-cluster-management.io"
OCM: Sequence[Resource[Any]] = (Resource("managedclusters", ManagedCluster, OCM_GROUP, "v1", Read.FIRST),)
"""All of a hub of Open Cluster Management; nothing is scored before all are listed."""

KUEUE = "kueue.x-k8s.io"
KUEUE_WORKLOADS = Resource("workloads", KueueWorkload, KUEUE, "v1beta2", Read.FIRST)
MULTIKUEUE: Sequence[Resource[Any]] = (
    Resource("multikueueclusters", MultiKueueCluster, KUEUE, "v1beta2", Read.FIRST),
    Resource("multikueueconfigs", MultiKueueConfig, KUEUE, "v1beta2", Read.FIRST),
    Resource("admissionchecks", AdmissionCheck, KUEUE, "v1beta2", Read.FIRST),
    Resource("clusterprofiles", ClusterProfile, "multicluster.x-k8s.io", "v1alpha1", Read.WHERE_SERVED),
    KUEUE_WORKLOADS,
)
"""All of Kueue's manager cluster; nothing is nominated before all are listed."""


def resource_of(binding: ResourceBinding) -> Resource[Any]:
    """Return the resource that a binding is of."""
    return CLUSTER_RESOURCE_BINDINGS if isinstance(binding, ClusterResourceBinding) else RESOURCE_BINDINGS
