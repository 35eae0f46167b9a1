"""Extended resources that a DeviceClass provides: the claim that represents what a pod's containers request.

A node that offers such a resource by a device plugin serves it; on other nodes the devices come from a claim that
the scheduler makes for the pod. So each node may need another claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.device_classes import class_by_resource, may_be_provided
from kube_policy_scheduler.cluster.devices.resource_claims import EXTENDED_RESOURCE_CLAIM
from kube_policy_scheduler.cluster.object_store import ObjectStore
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.devices.requests import EXACT_COUNT
from kube_policy_scheduler.quantities.exact_quantity import QuantityError, parse

CLAIM_NAME = "<extended-resources>"
"""Name of the claim while it exists in memory only."""


class RequestMapping(msgspec.Struct, frozen=True):
    """Which request of the claim serves a container's resource."""

    container_name: str
    resource_name: str
    request_name: str


class ExtendedRequests(msgspec.Struct, frozen=True):
    """What a claim for some extended resources requests."""

    requests: tuple[objects.DeviceRequest, ...]
    mappings: tuple[RequestMapping, ...]

    @property
    def spec(self) -> objects.ResourceClaimSpec:
        """Return it as the claim has it."""
        return objects.ResourceClaimSpec(devices=objects.DeviceClaim(requests=list(self.requests) or None))


def provided_resources(template: PodTemplate, store: ObjectStore) -> tuple[str, ...]:
    """Return the resources that pods of a template request and a DeviceClass provides, by name."""
    candidates = template.memo.get("extended-resources")
    if candidates is None:
        candidates = tuple(sorted(name for name in template.requests if may_be_provided(name)))
        template.memo["extended-resources"] = candidates
    if not candidates:
        return ()
    classes = class_by_resource(store)
    return tuple(name for name in candidates if name in classes)


def claim_in_memory(pod_name: str, pod_uid: str, namespace: str) -> objects.ResourceClaim:
    """Return the claim for a pod's extended resources before a node is chosen: without requests."""
    owner = objects.OwnerReference(api_version="v1", kind="Pod", name=pod_name, uid=pod_uid, controller=True)
    return objects.ResourceClaim(
        metadata=objects.ObjectMeta(
            name=CLAIM_NAME,
            namespace=namespace,
            uid=f"extended-resources/{pod_uid}",
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            owner_references=[owner],
        )
    )


def extended_requests(template: PodTemplate, resources: Sequence[str], classes: Mapping[str, str]) -> ExtendedRequests:
    """Return the requests for some extended resources of a pod, and which container each serves.

    Ordinary init containers use what later sidecars and main containers get, and only need what the largest of them
    needs beyond that.
    """
    key = ("extended-requests", tuple(resources), tuple(classes[name] for name in resources))
    known: ExtendedRequests | None = template.memo.get(key)
    if known is None:
        requests: list[objects.DeviceRequest] = []
        mappings: list[RequestMapping] = []
        for name in sorted(resources):
            _add_resource(template.spec, name, classes[name], requests, mappings)
        requests.sort(key=lambda request: request.name)
        known = template.memo[key] = ExtendedRequests(tuple(requests), tuple(mappings))
    return known


def _add_resource(
    spec: objects.PodSpec,
    resource: str,
    class_name: str,
    requests: list[objects.DeviceRequest],
    mappings: list[RequestMapping],
) -> None:
    init = spec.init_containers or []
    containers = [*init, *(spec.containers or ())]
    short_lived = [place for place, one in enumerate(init) if one.restart_policy != "Always"]
    long_lived = [place for place in range(len(containers)) if place not in short_lived]
    lasting: list[objects.DeviceRequest | None] = [None] * len(containers)
    for place in long_lived:
        lasting[place], mine = _of_container(place, containers[place], resource, class_name, ())
        mappings.extend(mine)
    largest: objects.DeviceRequest | None = None
    replaced: set[str] = set()
    temporary: list[RequestMapping] = []
    for place in short_lived:
        request, mine = _of_container(place, containers[place], resource, class_name, lasting[place:])
        if request is not None:
            replaced.add(request.name)
            if largest is None or _count(largest) < _count(request):
                largest = request
        temporary.extend(mine)
    if largest is not None:
        replaced.discard(largest.name)
        requests.append(largest)
        temporary = [
            RequestMapping(one.container_name, one.resource_name, largest.name) if one.request_name in replaced else one
            for one in temporary
        ]
    requests.extend(request for request in lasting if request is not None)
    mappings.extend(temporary)


def _count(request: objects.DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


def _of_container(
    place: int,
    container: objects.Container,
    resource: str,
    class_name: str,
    reusable: Sequence[objects.DeviceRequest | None],
) -> tuple[objects.DeviceRequest | None, list[RequestMapping]]:
    """Return what a container needs beyond the requests that it may reuse, and what serves it."""
    mappings: list[RequestMapping] = []
    wanted = (container.resources.requests or {}) if container.resources is not None else {}
    if resource not in wanted:
        return None, mappings
    try:
        amount = parse(wanted[resource]).as_int64()
    except QuantityError:
        amount = None
    if not amount:
        return None, mappings
    have = 0
    for request in reusable:
        if request is not None:
            have += _count(request)
            mappings.append(RequestMapping(container.name, resource, request.name))
            if have >= amount:
                return None, mappings
    name = f"container-{place}-request-{sorted(wanted).index(resource)}"
    mappings.append(RequestMapping(container.name, resource, name))
    exactly = objects.ExactDeviceRequest(device_class_name=class_name, allocation_mode=EXACT_COUNT, count=amount - have)
    return objects.DeviceRequest(name=name, exactly=exactly), mappings
