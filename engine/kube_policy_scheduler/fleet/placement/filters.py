"""The filters: which clusters can run a workload at all, and the reason where one cannot.

A filter is prepared once for a question and then asked about each cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from kube_policy_scheduler.cluster.taints import tolerated
from kube_policy_scheduler.fleet.model import NOTHING, FleetCluster, Groups
from kube_policy_scheduler.fleet.placement.affinity import matches, tier_of
from kube_policy_scheduler.fleet.placement.question import WORKLOAD_AFFINITY, Question

Test: TypeAlias = Callable[[FleetCluster], str]
"""Returns why a cluster is rejected, "" if it is not."""

_OF_ALL = ("NoSelect",)
_OF_NEW = ("NoSchedule", "NoExecute", "NoSelectIfNew", *_OF_ALL)
"""Effects of taints that reject a cluster: wherever the workload runs, and where it does not run yet."""
_FIELDS = {"provider": "provider", "region": "region", "zone": "zones"}


def everywhere(cluster: FleetCluster) -> str:
    """Reject no cluster: what a filter returns that has nothing to ask about a workload."""
    return ""


def eviction(question: Question) -> Test:
    """Reject clusters that the workload is leaving, also while it still runs there."""
    leaving = {task.cluster for task in question.workload.evicting}
    if not leaving:
        return everywhere
    return lambda cluster: "cluster(s) is in the process of eviction" if cluster.name in leaving else ""


def api_enablement(question: Question) -> Test:
    """Reject clusters that do not say that they serve the kind, unless the workload runs there."""
    workload = question.workload
    api = (workload.api_version, workload.kind)

    def test(cluster: FleetCluster) -> str:
        missing = api not in cluster.apis and cluster.name not in workload.has
        return "cluster(s) did not have the API resource" if missing else ""

    return test


def taint_toleration(question: Question) -> Test:
    """Reject clusters with a taint that the placement does not tolerate, unless the workload runs there.

    Of Open Cluster Management's effects, NoSelect also rejects clusters where it runs.
    """
    workload = question.workload

    def test(cluster: FleetCluster) -> str:
        if not cluster.taints:
            return ""
        effects = _OF_ALL if cluster.name in workload.has else _OF_NEW
        for taint in cluster.taints:
            if taint.effect in effects and not tolerated(workload.placement.tolerations, taint):
                value = f"={taint.value}" if taint.value else ""
                return f"cluster(s) had untolerated taint {{{taint.key}{value}:{taint.effect}}}"
        return ""

    return test


def cluster_affinity(question: Question) -> Test:
    """Reject clusters that neither the cluster affinity nor, for workloads with pods, one of its overflows matches."""
    workload, term = question.workload, question.term
    affinity = workload.placement.affinity

    def matched(cluster: FleetCluster) -> bool:
        if affinity is not None:
            return matches(affinity, cluster)
        if term is None:
            return True
        return tier_of(term, cluster) is not None if workload.has_pods else matches(term.affinity, cluster)

    if affinity is None and term is None:
        return everywhere
    no = "cluster(s) did not match the placement cluster affinity constraint"
    return lambda cluster: "" if matched(cluster) else no


def spread_constraint(question: Question) -> Test:
    """Reject clusters without a provider, region or zone by which the workload is spread."""
    by = [each.field for each in question.workload.placement.spread if each.field in _FIELDS]
    if not by:
        return everywhere

    def test(cluster: FleetCluster) -> str:
        has = {"provider": cluster.provider, "region": cluster.region, "zone": cluster.zones}
        missing = next((field for field in by if not has[field]), None)
        return f"cluster(s) did not have {_FIELDS[missing]} property" if missing is not None else ""

    return test


def workload_affinity(question: Question) -> Test:
    """Reject clusters without one of the other workloads of the affinity group, unless the workload runs there."""
    workload = question.workload
    others = _others(question, question.fleet.groups, workload.affinity_group)
    if not others:
        return everywhere
    shared = frozenset.intersection(*others)
    no = "ResourceBinding with the same affinity group does not target this cluster"
    return lambda cluster: "" if cluster.name in shared or cluster.name in workload.has else no


def workload_anti_affinity(question: Question) -> Test:
    """Reject clusters with other workloads of the anti-affinity group, unless the workload runs there."""
    workload = question.workload
    others = _others(question, question.fleet.anti_groups, workload.anti_affinity_group)
    if not others:
        return everywhere
    taken = frozenset.union(*others)
    no = "cluster already has workload with the same anti-affinity group"
    return lambda cluster: no if cluster.name in taken and cluster.name not in workload.has else ""


def _others(question: Question, groups: Groups, group: str) -> list[frozenset[str]]:
    """Return the clusters of each other workload of a group in the same namespace."""
    workload = question.workload
    if WORKLOAD_AFFINITY not in question.fleet.features or not group:
        return []
    members = groups.get((workload.namespace, group), NOTHING)
    return [clusters for key, clusters in members.items() if clusters and key != workload.identity]


FILTERS: Mapping[str, Callable[[Question], Test]] = MappingProxyType(
    {
        "ClusterEviction": eviction,
        "APIEnablement": api_enablement,
        "TaintToleration": taint_toleration,
        "ClusterAffinity": cluster_affinity,
        "SpreadConstraint": spread_constraint,
        "WorkloadAffinity": workload_affinity,
        "WorkloadAntiAffinity": workload_anti_affinity,
    }
)
"""By Karmada's names, in the order in which they are asked: the first that rejects a cluster is its reason."""
