"""ClusterProfile of SIG Multicluster: what a cluster manager says of a cluster, in a form that engines share."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field
from msgspec.structs import replace

from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.cluster.objects.structs import ApiStruct
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.fleet.model import ClusterCondition, FleetCluster
from kube_policy_scheduler.times import unix_seconds


class ProfileProperty(ApiStruct):
    """A property, such as a location or a price."""

    name: str = ""
    value: str = ""


class ProfileCondition(ApiStruct):
    """A condition, such as ControlPlaneHealthy."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class ProfileVersion(ApiStruct):
    """Versions of what the cluster runs."""

    kubernetes: str = ""


class ProfileStatus(ApiStruct):
    """What is observed of the cluster."""

    properties: list[ProfileProperty] | None = None
    conditions: list[ProfileCondition] | None = None
    version: ProfileVersion = field(default_factory=ProfileVersion)


class ClusterProfile(ApiStruct):
    """A ClusterProfile of `multicluster.x-k8s.io`."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: ProfileStatus = field(default_factory=ProfileStatus)


REGION_KEY, ZONE_KEY = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
"""Properties or labels that say where a cluster is."""
HEALTHY = "ControlPlaneHealthy"
UNHEALTHY = TaintKey("policy-scheduler/control-plane-unhealthy", "", "NoSchedule")
"""Of a cluster whose control plane is not healthy, so that it is rejected as a cluster with a taint is."""


def profile_cluster(profile: ClusterProfile) -> FleetCluster:
    """Return the cluster of a profile, named like it; it is ready if its control plane is healthy."""
    made = with_profile(FleetCluster(profile.metadata.name, summarized=False, counts_requests=False), profile)
    conditions = dict(made.conditions)
    if HEALTHY in conditions:
        conditions.setdefault("Ready", conditions[HEALTHY])
    zone = made.labels.get(ZONE_KEY, "")
    return replace(
        made,
        conditions=conditions,
        region=made.labels.get(REGION_KEY, ""),
        zones=(zone,) if zone else (),
        taints=(UNHEALTHY,) if HEALTHY in conditions and conditions[HEALTHY].status != "True" else (),
        deleting=profile.metadata.deletion_timestamp is not None,
    )


def with_profile(cluster: FleetCluster, profile: ClusterProfile) -> FleetCluster:
    """Return a cluster with what its profile says, too; where both say something, that of the cluster counts.

    Properties of the profile are labels.
    """
    meta, status = profile.metadata, profile.status
    properties = {each.name: each.value for each in status.properties or ()}
    conditions: Mapping[str, ClusterCondition] = {
        each.type: ClusterCondition(each.status, unix_seconds(each.last_transition_time))
        for each in status.conditions or ()
        if each.type != "Ready"
    }
    return replace(
        cluster,
        labels={**properties, **(meta.labels or {}), **cluster.labels},
        annotations={**(meta.annotations or {}), **cluster.annotations},
        conditions={**conditions, **cluster.conditions},
        version=cluster.version or status.version.kubernetes,
    )
