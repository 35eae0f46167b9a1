"""The resources of a Karmada control plane that are watched and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kube_policy_scheduler.adapters.kube.resources import Read, Resource
from kube_policy_scheduler.fleet.karmada.objects import ClusterResourceBinding, KarmadaCluster, ResourceBinding

GROUP, VERSION = "work.karmada.io", "v1alpha2"
CLUSTERS = Resource("clusters", KarmadaCluster, "cluster.karmada.io", "v1alpha1", Read.FIRST)
"""Served by Karmada's aggregated API server."""
RESOURCE_BINDINGS = Resource("resourcebindings", ResourceBinding, GROUP, VERSION, Read.FIRST)
CLUSTER_RESOURCE_BINDINGS = Resource("clusterresourcebindings", ClusterResourceBinding, GROUP, VERSION, Read.FIRST)

FLEET: Sequence[Resource[Any]] = (CLUSTERS, RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS)
"""All of them; nothing is decided before all are listed."""


def resource_of(binding: ResourceBinding) -> Resource[Any]:
    """Return the resource that a binding is of."""
    return CLUSTER_RESOURCE_BINDINGS if isinstance(binding, ClusterResourceBinding) else RESOURCE_BINDINGS
