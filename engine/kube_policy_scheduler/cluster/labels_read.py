"""The labels of nodes that decisions about a pod read because the pod names them."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodTemplate


def labels_read(template: PodTemplate) -> tuple[str, ...]:
    """Return the keys of labels that a template's node selectors and topologies name, each once."""
    known: tuple[str, ...] | None = template.shape.get("labels read")
    if known is None:
        known = template.shape["labels read"] = tuple(dict.fromkeys(_keys(template.spec)))
    return known


def _keys(spec: objects.PodSpec) -> Iterator[str]:
    yield from spec.node_selector or ()
    for constraint in spec.topology_spread_constraints or ():
        yield constraint.topology_key
    affinity = spec.affinity or objects.Affinity()
    if (of_nodes := affinity.node_affinity) is not None:
        terms = list((of_nodes.required and of_nodes.required.node_selector_terms) or ())
        terms += [each.preference for each in of_nodes.preferred or () if each.preference is not None]
        yield from (each.key for term in terms for each in term.match_expressions or ())
    for of_pods in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if of_pods is not None:
            yield from (each.topology_key for each in of_pods.required or ())
            weighted = (each.pod_affinity_term for each in of_pods.preferred or ())
            yield from (each.topology_key for each in weighted if each is not None)
