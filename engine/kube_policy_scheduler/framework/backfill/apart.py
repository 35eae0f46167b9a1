"""Where a pod would keep another one off that is to start later: near it, by the topology keys of their rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_policy_scheduler.cluster.affinity import affinity_terms
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.backfill.reservation import Seat
from kube_policy_scheduler.framework.plugins.spread_constraints import HARD, own_constraints


def keep_apart(passing: BoolArray, cluster: Cluster, template: PodTemplate, seats: Iterable[Seat]) -> None:
    """Leave out the nodes on which pods of a template would keep a pod off its seat.

    Those are the nodes of the same domain, by each key of a required anti-affinity of one of both that selects the
    other, or of a spread constraint of the seated pod that counts the new one.

    Args:
        passing: `bool[nodes]`, is changed.
        cluster: as it stands.
        template: of the new pod.
        seats: of the pods that room is reserved for.
    """
    known: dict[PodTemplate, Mapping[str, None]] = {}
    left_out: dict[tuple[str, int], None] = {}
    nodes = cluster.nodes
    for seat in seats:
        row, seated = nodes.rows.get(seat.node_name), seat.pod.template
        if row is None:
            continue
        keys = known.get(seated)
        if keys is None:
            keys = known[seated] = _keys_apart(cluster, template, seated)
        left_out.update(dict.fromkeys((key, int(nodes.label(key).codes[row])) for key in keys))
    for key, code in left_out:
        if code >= 0:  # else the node has no such label, and the rule does not hold there
            passing &= nodes.label(key).codes != code


def _keys_apart(cluster: Cluster, new: PodTemplate, seated: PodTemplate) -> Mapping[str, None]:
    namespaces, keys = cluster.counters.namespaces, dict[str, None]()
    for one, other in ((new, seated), (seated, new)):
        for term in affinity_terms(one).required_anti:
            if term.pods.matches(other, namespaces):
                keys[term.topology_key] = None
    if new.namespace == seated.namespace:
        for constraint in own_constraints(seated, HARD):
            if constraint.selects(new.labels):
                keys[constraint.topology_key] = None
    return keys
