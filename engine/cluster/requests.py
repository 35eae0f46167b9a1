"""What a pod asks of a node: effective resource requests, in column units (cpu in millicores, others in units).

The rules are those of `component-helpers/resource` (PodRequests) in Kubernetes 1.36: sidecars, init
containers, pod-level resources, overhead and in-place resize.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.cluster import objects
from engine.cluster.quantity import amount

Amounts = dict[str, int]
"""Amount by resource name, in column units; resources that nobody counts are left out."""

DEFAULT_CPU_MILLIS = 100
"""What least_allocated assumes of a container that names no cpu request."""
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
"""What least_allocated assumes of a container that names no memory request."""

NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_QUALIFIED = re.compile(r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Demand:
    """What one pod counts for on its node."""

    requests: Mapping[str, int]
    nonzero_cpu_millis: int
    nonzero_memory_bytes: int


def is_scalar(resource: str) -> bool:
    """Return whether the scheduler counts this resource beside the native ones (`IsScalarResourceName`)."""
    if "kubernetes.io/" in resource or resource.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return is_extended(resource)


def is_extended(resource: str) -> bool:
    """Return whether this is an extended resource such as `nvidia.com/gpu` (`IsExtendedResourceName`)."""
    if "/" not in resource or "kubernetes.io/" in resource or resource.startswith("requests."):
        return False
    return _QUALIFIED.fullmatch(f"requests.{resource}") is not None


def counted(resource: str) -> bool:
    """Return whether the scheduler looks at this resource at all."""
    return resource in NATIVE or is_scalar(resource)


def _is_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def amounts(resources: objects.Resources | None) -> Amounts:
    """Return the counted resources of an API map in column units."""
    return {name: amount(name, text) for name, text in (resources or {}).items() if counted(name)}


def _requests(resources: objects.ResourceRequirements | None) -> Amounts:
    return amounts(resources.requests) if resources is not None else {}


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: Amounts, floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        if value > total.get(name, 0):
            total[name] = value


def _aggregate(
    containers: Iterable[tuple[objects.Container, Amounts]], init: Iterable[tuple[objects.Container, Amounts]]
) -> Amounts:
    """Combine per-container requests: regular and sidecar containers add up, init containers need their peak."""
    run: Amounts = {}
    for _, requests in containers:
        _add(run, requests)
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container, requests in init:
        if container.restart_policy == "Always":
            _add(run, requests)
            _add(sidecars, requests)
            _raise_to(peak, sidecars)
        else:
            candidate = dict(requests)
            _add(candidate, sidecars)
            _raise_to(peak, candidate)
    _raise_to(run, peak)
    return run


def _with_pod_level(spec: objects.PodSpec, total: Amounts, pod_level: Amounts) -> Amounts:
    total.update({name: value for name, value in pod_level.items() if _is_pod_level(name)})
    _add(total, amounts(spec.overhead))
    return total


def _defaulted(requests: Amounts, *, cpu: bool, memory: bool) -> Amounts:
    """Return cpu and memory only, with the scoring defaults where the container names none."""
    return {
        "cpu": requests.get("cpu", DEFAULT_CPU_MILLIS if cpu else 0),
        "memory": requests.get("memory", DEFAULT_MEMORY_BYTES if memory else 0),
    }


def incoming(spec: objects.PodSpec) -> Demand:
    """Return the demand of a pod that is to be scheduled: by its spec alone.

    The scoring part ignores pod-level resources, as kube-scheduler's resource scorer does.
    """
    regular = [(c, _requests(c.resources)) for c in spec.containers or ()]
    init = [(c, _requests(c.resources)) for c in spec.init_containers or ()]
    total = _with_pod_level(spec, _aggregate(regular, init), _requests(spec.resources))
    scoring = _aggregate(
        [(c, _defaulted(r, cpu=True, memory=True)) for c, r in regular],
        [(c, _defaulted(r, cpu=True, memory=True)) for c, r in init],
    )
    _add(scoring, amounts(spec.overhead))
    return Demand(_nonzero(total), scoring.get("cpu", 0), scoring.get("memory", 0))


def existing(pod: objects.Pod) -> Demand:
    """Return the demand of a pod that is on a node: after an in-place resize, the most that it may still hold."""
    spec, status = pod.spec, pod.status
    infeasible = any(
        c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions or ()
    )
    statuses = {s.name: s for s in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))}

    def held(container: objects.Container, *, resizable: bool) -> Amounts:
        requests = _requests(container.resources)
        current = statuses.get(container.name) if resizable else None
        if current is None or current.resources is None:
            return requests
        actual = _requests(current.resources)
        _raise_to(actual, amounts(current.allocated_resources))
        if not infeasible:
            _raise_to(actual, requests)
        return actual

    regular = [(c, held(c, resizable=True)) for c in spec.containers or ()]
    init = [(c, held(c, resizable=c.restart_policy == "Always")) for c in spec.init_containers or ()]
    pod_level = _requests(spec.resources)
    if pod_level and status.resources is not None:
        actual = _requests(status.resources)
        _raise_to(actual, amounts(status.allocated_resources))
        if not infeasible:
            _raise_to(actual, pod_level)
        pod_level = actual
    total = _with_pod_level(spec, _aggregate(regular, init), pod_level)
    named = _requests(spec.resources)
    cpu, memory = "cpu" not in named, "memory" not in named
    scoring = _with_pod_level(
        spec,
        _aggregate(
            [(c, _defaulted(r, cpu=cpu, memory=memory)) for c, r in regular],
            [(c, _defaulted(r, cpu=cpu, memory=memory)) for c, r in init],
        ),
        pod_level,
    )
    return Demand(_nonzero(total), scoring.get("cpu", 0), scoring.get("memory", 0))


def _nonzero(total: Amounts) -> Amounts:
    return {name: value for name, value in total.items() if value}
