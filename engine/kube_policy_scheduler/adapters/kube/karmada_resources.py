"""The resources of a Karmada control plane that a decision reads."""

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

KARMADA: Sequence[Resource[Any]] = (CLUSTERS, RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS)
"""All of them; nothing is decided before all are listed."""
