"""The resources of engines of many clusters that a decision reads: of Karmada, Kueue, and Open Cluster Management."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kube_policy_scheduler.adapters.kube.resources import Read, Resource
from kube_policy_scheduler.fleet.cluster_profile import ClusterProfile
from kube_policy_scheduler.fleet.inventory.objects import ProfileDecision
from kube_policy_scheduler.fleet.karmada.objects import ClusterResourceBinding, KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.multikueue.objects import (
    AdmissionCheck,
    KueueWorkload,
    MultiKueueCluster,
    MultiKueueConfig,
)
from kube_policy_scheduler.fleet.ocm.objects import (
    ClusterPlacement,
    ManagedCluster,
    ManagedClusterSet,
    ManagedClusterSetBinding,
    PlacementDecision,
)

WORK, WORK_VERSION = "work.karmada.io", "v1alpha2"
CLUSTERS = Resource("clusters", KarmadaCluster, "cluster.karmada.io", "v1alpha1", Read.FIRST)
"""Served by Karmada's aggregated API server."""
RESOURCE_BINDINGS = Resource("resourcebindings", ResourceBinding, WORK, WORK_VERSION, Read.FIRST)
CLUSTER_RESOURCE_BINDINGS = Resource("clusterresourcebindings", ClusterResourceBinding, WORK, WORK_VERSION, Read.FIRST)
KARMADA: Sequence[Resource[Any]] = (CLUSTERS, RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS)
"""All of a Karmada control plane; nothing is decided before all are listed."""

INVENTORY_GROUP = "multicluster.x-k8s.io"
PROFILE_DECISIONS = Resource("placementdecisions", ProfileDecision, INVENTORY_GROUP, "v1alpha1", Read.FIRST)
INVENTORY: Sequence[Resource[Any]] = (
    Resource("clusterprofiles", ClusterProfile, INVENTORY_GROUP, "v1alpha1", Read.FIRST),
    PROFILE_DECISIONS,
)
"""All of a cluster inventory; nothing is chosen before all are listed."""

KUEUE = "kueue.x-k8s.io"
KUEUE_WORKLOADS = Resource("workloads", KueueWorkload, KUEUE, "v1beta2", Read.FIRST)
MULTIKUEUE: Sequence[Resource[Any]] = (
    Resource("multikueueclusters", MultiKueueCluster, KUEUE, "v1beta2", Read.FIRST),
    Resource("multikueueconfigs", MultiKueueConfig, KUEUE, "v1beta2", Read.FIRST),
    Resource("admissionchecks", AdmissionCheck, KUEUE, "v1beta2", Read.FIRST),
    Resource("clusterprofiles", ClusterProfile, INVENTORY_GROUP, "v1alpha1", Read.WHERE_SERVED),
    KUEUE_WORKLOADS,
)
"""All of Kueue's manager cluster; nothing is nominated before all are listed."""

OCM_GROUP = "cluster.open-cluster-management.io"
CLUSTER_PLACEMENTS = Resource("placements", ClusterPlacement, OCM_GROUP, "v1beta1", Read.FIRST)
PLACEMENT_DECISIONS = Resource("placementdecisions", PlacementDecision, OCM_GROUP, "v1beta1", Read.FIRST)
OCM: Sequence[Resource[Any]] = (
    Resource("managedclusters", ManagedCluster, OCM_GROUP, "v1", Read.FIRST),
    Resource("managedclustersets", ManagedClusterSet, OCM_GROUP, "v1beta2", Read.FIRST),
    Resource("managedclustersetbindings", ManagedClusterSetBinding, OCM_GROUP, "v1beta2", Read.FIRST),
    PLACEMENT_DECISIONS,
    CLUSTER_PLACEMENTS,
)
"""All of a hub of Open Cluster Management; nothing is scored or decided before all are listed."""


def resource_of(binding: ResourceBinding) -> Resource[Any]:
    """Return the resource that a binding of Karmada is of."""
    return CLUSTER_RESOURCE_BINDINGS if isinstance(binding, ClusterResourceBinding) else RESOURCE_BINDINGS
