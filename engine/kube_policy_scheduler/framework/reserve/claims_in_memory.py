"""Claims without an API server: what a scheduler and the claim controller write, done to a cluster in memory at once.

For tests, simulations and replays, where nothing else changes the claims.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import key_of
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.devices.extended_resources import CLAIM_NAME
from kube_policy_scheduler.framework.devices.group_claims import (
    API_GROUP,
    group_with,
    is_made_for,
    others_of_group,
    user_of,
)
from kube_policy_scheduler.framework.frame import DeviceOrder, Frame
from kube_policy_scheduler.framework.reserve.claim_reservation import (
    has_claims,
    reserve_on,
    stamped,
    undo,
)
from kube_policy_scheduler.times import rfc3339


def take_claims(
    cluster: Cluster, pod: PodInfo, node_name: str, *, now: float, order: DeviceOrder | None = None
) -> Callable[[], None]:
    """Allocate a pod's claims on its node, and return a function that undoes it.

    order: in which the devices of the node are tried; None: kube-scheduler's.
    """
    row = cluster.nodes.rows.get(node_name)
    if row is None or not has_claims(pod.template, cluster):
        return _nothing
    frame = Frame(pod, cluster, now, rows=np.array([row]), device_order=order)
    with cluster.ledger.silent():
        reservation = reserve_on(frame)
        if reservation is None or isinstance(reservation, str):
            return _nothing
        undo(reservation, cluster)
    before: list[objects.ResourceClaim] = []
    made: list[objects.ResourceClaim] = []
    for one in reservation.claims:
        allocation = one.allocation or one.claim.status.allocation
        if allocation is None or one.is_reserved:
            continue
        status = msgspec.structs.replace(
            one.claim.status, allocation=stamped(allocation, rfc3339(now)), reserved_for=one.users
        )
        meta = one.claim.metadata
        if meta.name == CLAIM_NAME:
            meta = msgspec.structs.replace(meta, name=f"{pod.name}-extended-resources")
        claim = msgspec.structs.replace(one.claim, metadata=meta, status=status)
        (made if meta is not one.claim.metadata else before).append(one.claim if meta is one.claim.metadata else claim)
        cluster.set_object(claim)

    def take_back() -> None:
        for claim in before:
            cluster.set_object(claim)
        for claim in made:
            cluster.remove_object(claim)

    return take_back


def give_claims_back(cluster: Cluster, pod: PodInfo, *, ends: bool = True) -> Callable[[], None]:
    """Remove a pod from the users of its claims, and return a function that undoes it.

    Claims that no other pod uses lose their devices; one of a PodGroup loses them with the last pod of the group.
    ends: whether the pod's own claims are deleted with it.
    """
    names = [name for name in (*pod.claim_names.values(), *_named(pod)) if name is not None]
    used = [cluster.resource_claims.get(key_of(pod.namespace, name)) for name in names]
    used.append(cluster.resource_claims.for_extended_resources(pod.uid))
    before = [claim for claim in used if claim is not None]
    for claim in before:
        if ends and any(owner.controller and owner.uid == pod.uid for owner in claim.metadata.owner_references or ()):
            cluster.remove_object(claim)
            continue
        left = user_of(pod, claim, cluster)
        goes = left.uid if not others_of_group(left, pod, cluster) else None
        users = [user for user in claim.status.reserved_for or () if user.uid != goes]
        allocation = claim.status.allocation if users else None
        status = msgspec.structs.replace(claim.status, allocation=allocation, reserved_for=users or None)
        cluster.set_object(msgspec.structs.replace(claim, status=status))

    def take_back() -> None:
        for claim in before:
            cluster.set_object(claim)

    return take_back


def make_claims(cluster: Cluster, pod: objects.Pod) -> None:
    """Make the claims of a pod whose templates are in the cluster, as their controller does, and name them in it.

    One that was made for another cluster of the same objects is made here, too.
    """
    meta = pod.metadata
    known = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses or ()}
    for reference in pod.spec.resource_claims or ():
        template = _template(cluster, meta.namespace, reference)
        named = known.get(reference.name)
        maker = _Maker.of(meta, group_with(meta.namespace, pod.spec, reference, cluster))
        is_elsewhere = named == _claim_name(maker.name, reference.name) and (
            cluster.resource_claims.get(key_of(meta.namespace, named)) is None
        )
        if template is None or (reference.name in known and not is_elsewhere):
            continue
        name = _make_claim(cluster, template, reference.name, maker)
        if is_elsewhere:
            continue
        status = objects.PodResourceClaimStatus(name=reference.name, resource_claim_name=name)
        pod.status.resource_claim_statuses = [*(pod.status.resource_claim_statuses or ()), status]


def with_claims_like(cluster: Cluster, pod: PodInfo) -> PodInfo:
    """Return a copy of a pod, with its own copies of the other's claims."""
    names = dict(pod.claim_names)
    for reference in pod.template.spec.resource_claims or ():
        known = names.get(reference.name)
        claim = cluster.resource_claims.get(key_of(pod.namespace, known)) if known is not None else None
        spec = claim.spec if claim is not None else _template(cluster, pod.namespace, reference)
        if (
            spec is not None
            and reference.resource_claim_template_name is not None
            and group_with(pod.namespace, pod.template.spec, reference, cluster) is None
        ):
            maker = _Maker("Pod", "v1", pod.namespace, pod.name, pod.uid)
            names[reference.name] = _make_claim(cluster, spec, reference.name, maker)
    return msgspec.structs.replace(pod, claim_names=names)


def _template(
    cluster: Cluster, namespace: str, reference: objects.PodResourceClaim
) -> objects.ResourceClaimSpec | None:
    key = key_of(namespace, reference.resource_claim_template_name or "")
    template = cluster.get(objects.ResourceClaimTemplate, key)
    return msgspec.convert(template.spec.get("spec") or {}, objects.ResourceClaimSpec) if template is not None else None


class _Maker(NamedTuple):
    """Whom a claim is made for: a pod, or a PodGroup."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, pod: objects.ObjectMeta, group: objects.PodGroup | None) -> Self:
        """Return it. group: whose the claim is; None: it is the pod's own."""
        if group is None:
            return cls("Pod", "v1", pod.namespace, pod.name, pod.uid)
        meta = group.metadata
        return cls("PodGroup", API_GROUP, meta.namespace, meta.name, meta.uid)


def _make_claim(cluster: Cluster, spec: objects.ResourceClaimSpec, reference: str, maker: _Maker) -> str:
    """Make a claim, unless it was made for another pod of the same group; return its name."""
    name = _claim_name(maker.name, reference)
    known = cluster.resource_claims.get(key_of(maker.namespace, name))
    if maker.kind == "Pod" or known is None or not is_made_for(known, maker.uid):
        owner = objects.OwnerReference(
            api_version=maker.api_version, kind=maker.kind, name=maker.name, uid=maker.uid, controller=True
        )
        metadata = objects.ObjectMeta(
            name=name, namespace=maker.namespace, uid=f"{maker.uid}/{reference}", owner_references=[owner]
        )
        cluster.set_object(objects.ResourceClaim(metadata=metadata, spec=spec))
    return name


def _claim_name(maker: str, reference: str) -> str:
    return f"{maker}-{reference}"


def _named(pod: PodInfo) -> list[str | None]:
    return [reference.resource_claim_name for reference in pod.template.spec.resource_claims or ()]


def _nothing() -> None:
    return
