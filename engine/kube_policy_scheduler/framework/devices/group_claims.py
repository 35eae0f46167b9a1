"""Claims that a PodGroup shares among its pods: reserved for the group, not for each of its pods.

A claim of a pod is its group's if the group has one with the same name that comes from the same ResourceClaim or
ResourceClaimTemplate. The claim of a template is made once for the group, and the status of each pod names it.
"""

from __future__ import annotations

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import key_of
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.kubernetes_rules import Feature

API_GROUP, RESOURCE = "scheduling.k8s.io", "podgroups"
"""Of users of claims that are PodGroups."""


def group_with(
    namespace: str, spec: objects.PodSpec, reference: objects.PodResourceClaim, cluster: Cluster
) -> objects.PodGroup | None:
    """Return the PodGroup of pods with this spec if a claim of theirs is the group's, else None."""
    named = spec.scheduling_group
    if named is None or not named.pod_group_name or Feature.DRA_WORKLOAD_RESOURCE_CLAIMS not in cluster.rules:
        return None
    group = cluster.get(objects.PodGroup, key_of(namespace, named.pod_group_name))
    claims = (group.spec.resource_claims or ()) if group is not None else ()
    own = reference.name, reference.resource_claim_name, reference.resource_claim_template_name
    shared = ((each.name, each.resource_claim_name, each.resource_claim_template_name) for each in claims)
    return group if own in shared else None


def user_of(pod: PodInfo, claim: objects.ResourceClaim, cluster: Cluster) -> objects.ResourceClaimConsumerReference:
    """Return whom a claim of a pod is reserved for: the pod, or its PodGroup if the claim is the group's."""
    spec = pod.template.spec
    for reference in spec.resource_claims or ():
        name = reference.resource_claim_name or pod.claim_names.get(reference.name)
        if name == claim.metadata.name and (group := group_with(pod.namespace, spec, reference, cluster)) is not None:
            meta = group.metadata
            return objects.ResourceClaimConsumerReference(
                api_group=API_GROUP, resource=RESOURCE, name=meta.name, uid=meta.uid
            )
    return objects.ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.uid)


def is_made_for(claim: objects.ResourceClaim, uid: str) -> bool:
    """Return whether a claim was made of a template for a pod, or for a PodGroup. uid: of which."""
    return any(owner.controller and owner.uid == uid for owner in claim.metadata.owner_references or ())


def others_of_group(user: objects.ResourceClaimConsumerReference, pod: PodInfo, cluster: Cluster) -> bool:
    """Return whether a user of a claim is the PodGroup of a pod, and other pods of the group are on nodes.

    It takes as long for a large cluster as for a small one, but for pods that end.
    """
    if user.resource != RESOURCE or user.api_group != API_GROUP:
        return False
    group, own = key_of(pod.namespace, user.name), cluster.pods.get(pod.uid)
    is_counted = own is not None and not own.terminating and own.uid not in cluster.on_unknown_nodes
    if cluster.counters.group_size(_pod_group, group) > int(is_counted and _pod_group(pod.template) == group):
        return True
    uncounted = (*cluster.leaving(), *cluster.on_unknown_nodes.values())
    return any(other.uid != pod.uid and _pod_group(other.template) == group for other in uncounted)


def _pod_group(template: PodTemplate) -> str | None:
    """Return the PodGroup of pods as `namespace/name`; None: they are in none."""
    group = template.spec.scheduling_group
    return key_of(template.namespace, group.pod_group_name) if group is not None and group.pod_group_name else None
