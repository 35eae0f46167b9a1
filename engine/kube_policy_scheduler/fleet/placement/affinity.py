"""Which clusters a cluster affinity matches."""

from __future__ import annotations

from kube_policy_scheduler.fleet.model import AffinityTerm, ClusterAffinity, FieldTest, FleetCluster


def matches(affinity: ClusterAffinity, cluster: FleetCluster) -> bool:
    """Return whether the affinity matches the cluster: all that it requires, and it is not excluded."""
    return (
        cluster.name not in affinity.exclude
        and (not affinity.names or cluster.name in affinity.names)
        and affinity.labels is not None
        and affinity.labels.matches(cluster.labels)
        and all(_meets(test, cluster) for test in affinity.fields)
    )


def _meets(test: FieldTest, cluster: FleetCluster) -> bool:
    """Return whether the field has one of the values, or none of them; of several zones, one is enough."""
    match test.key:
        case "zone":
            have = frozenset(cluster.zones)
        case "region":
            have = frozenset((cluster.region,)) if cluster.region else frozenset()
        case "provider":
            have = frozenset((cluster.provider,)) if cluster.provider else frozenset()
        case _:
            have = frozenset()
    match test.operator:
        case "In":
            return not have.isdisjoint(test.values)
        case "NotIn":
            return have.isdisjoint(test.values)
        case "Exists":
            return bool(have)
        case "DoesNotExist":
            return not have
    return False


def tier_of(term: AffinityTerm, cluster: FleetCluster) -> int | None:
    """Return the tier of a cluster: 0 if the affinity matches, else that of the first overflow; None without any."""
    for tier, affinity in enumerate((term.affinity, *term.overflow)):
        if matches(affinity, cluster):
            return tier
    return None
