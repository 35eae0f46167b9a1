"""From managed clusters to rows."""

from __future__ import annotations

from collections.abc import Mapping

from kube_policy_scheduler.cluster.objects.structs import Resources
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.fleet import model
from kube_policy_scheduler.fleet.ocm.objects import ManagedCluster
from kube_policy_scheduler.quantities.quantity import QuantityError, nanos
from kube_policy_scheduler.times import unix_seconds

AVAILABLE = "ManagedClusterConditionAvailable"
PLATFORM, REGION = "platform.open-cluster-management.io", "region.open-cluster-management.io"
"""Claims: the provider, such as AWS, and its region."""


def cluster(written: ManagedCluster) -> model.FleetCluster:
    """Return a managed cluster. Its claims are labels, too; what its pods request, OCM does not say."""
    meta, status = written.metadata, written.status
    claims = {each.name: each.value for each in status.cluster_claims or ()}
    conditions = {
        each.type: model.ClusterCondition(each.status, unix_seconds(each.last_transition_time))
        for each in status.conditions or ()
    }
    if AVAILABLE in conditions:
        conditions.setdefault("Ready", conditions[AVAILABLE])
    return model.FleetCluster(
        name=meta.name,
        labels=claims | (meta.labels or {}),
        annotations=meta.annotations or model.NOTHING,
        provider=claims.get(PLATFORM, ""),
        region=claims.get(REGION, ""),
        taints=tuple(TaintKey(each.key, each.value, each.effect) for each in written.spec.taints or ()),
        version=status.version.kubernetes,
        conditions=conditions,
        deleting=meta.deletion_timestamp is not None,
        summarized=False,
        counts_requests=False,
        allocatable=_amounts(status.allocatable),
    )


def _amounts(written: Resources | None) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name, amount in (written or {}).items():
        try:
            found[name] = nanos(amount)
        except QuantityError:
            continue
    return found
