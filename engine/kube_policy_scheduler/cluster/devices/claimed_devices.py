"""How many devices of which class pods claim, as ResourceQuota counts `<class>.deviceclass.resource.k8s.io/devices`.

A claim counts once, however many pods share it. What is allocated counts as it is. Before that a request counts the
number that it asks for, `All` counts as the most that a claim can have, and of alternatives each class counts with the
largest number. Administrative access takes no device away and does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo

CLAIMED = ".deviceclass.resource.k8s.io/devices"
"""The end of the names of these resources; before it stands the DeviceClass."""
MOST_ALLOCATED = 32
"""Devices that one claim can have, by the API."""


def device_class(resource: str) -> str | None:
    """Return the DeviceClass whose claimed devices a resource counts; None: it is another resource."""
    return resource.removesuffix(CLAIMED) or None if resource.endswith(CLAIMED) else None


def claim_keys(pod: PodInfo) -> Iterator[str]:
    """Yield `namespace/name` of the claims that a pod refers to, as far as they have a name yet; each once."""
    claims = pod.template.spec.resource_claims or ()
    names = (each.resource_claim_name or pod.claim_names.get(each.name) for each in claims)
    for name in dict.fromkeys(names):
        if name:
            yield f"{pod.namespace}/{name}"


def claimed_devices(claim: objects.ResourceClaim) -> Mapping[str, int]:
    """Return how many devices a claim has, or asks for, by DeviceClass."""
    allocation = claim.status.allocation
    if allocation is not None:
        classes = _classes(claim)
        found: Counter[str] = Counter()
        for result in allocation.devices.results or ():
            if not result.admin_access and (name := classes.get(result.request)):
                found[name] += 1
        return found
    asked: Counter[str] = Counter()
    for request in claim.spec.devices.requests or ():
        if request.exactly is not None:
            if not request.exactly.admin_access:
                asked[request.exactly.device_class_name] += _number(request.exactly)
        else:
            most: Counter[str] = Counter()
            for one in request.first_available or ():
                most[one.device_class_name] = max(most[one.device_class_name], _number(one))
            asked.update(most)
    return asked


def _classes(claim: objects.ResourceClaim) -> dict[str, str]:
    """Return the DeviceClass by the name that an allocation gives a request: of alternatives `request/alternative`."""
    found: dict[str, str] = {}
    for request in claim.spec.devices.requests or ():
        if request.exactly is not None:
            found[request.name] = request.exactly.device_class_name
        for one in request.first_available or ():
            found[f"{request.name}/{one.name}"] = one.device_class_name
    return found


def _number(request: objects.ExactDeviceRequest | objects.DeviceSubRequest) -> int:
    return MOST_ALLOCATED if request.allocation_mode == "All" else max(1, request.count)
