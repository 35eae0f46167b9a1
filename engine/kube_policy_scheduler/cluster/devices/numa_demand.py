"""What of a pod the kubelet takes from single NUMA nodes: its topology manager asks the managers of what each one pins.

Rules of the kubelet 1.36:

- The static CPU manager pins the containers of Guaranteed pods that request whole CPUs, and nothing else
  (`guaranteedCPUs` in pkg/kubelet/cm/cpumanager/policy_static.go).
- The static memory manager takes memory and huge pages of the containers of Guaranteed pods from NUMA nodes.
- The device manager aligns devices of device plugins for pods of any QoS class.
- A pod with resources of its own (`spec.resources`) gets neither pinned CPUs nor aligned memory.
- With the scope `pod`, the pod needs at once the most that it has at any time: init containers run one after the
  other, and beside them the sidecars that have started (`podGuaranteedCPUs`). With `container`, each is aligned by
  itself, in the order in which they start, and what an init container had is used again.
- The overhead of a pod is never aligned.

Assumed is that these managers are static where a NodeResourceTopology says what NUMA nodes have: an exporter reads that
from them, and says nothing about memory where none of it is pinned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.requests import Amounts, amounts, is_pod_level, quality_of_service

_NEVER = ("ephemeral-storage", "pods")
_MILLIS = 1000


class Part(msgspec.Struct, frozen=True):
    """What is aligned at once: one container, or the whole pod."""

    amounts: Amounts
    """In column units by resource, no zero ones."""
    gives_back: bool = False
    """Whether later parts use it again: it is an init container."""


class AlignedDemand(msgspec.Struct, frozen=True):
    """What of a pod is aligned, in either scope."""

    pod: Amounts
    containers: tuple[Part, ...]
    """In the order in which they start; those of which nothing is aligned are left out."""


def aligned(template: PodTemplate) -> AlignedDemand:
    """Return what of the pods of a template is aligned."""
    known: AlignedDemand | None = template.memo.get("aligned")
    if known is None:
        known = template.memo["aligned"] = aligned_of(template.spec)
    return known


def aligned_of(spec: objects.PodSpec) -> AlignedDemand:
    """Return what of a pod is aligned, by its spec."""
    pins = quality_of_service(spec) == "Guaranteed" and not _has_own_resources(spec)
    parts: list[Part] = []
    sidecars: dict[str, int] = {}
    run: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers or ():
        found = dict(_of_container(container, pins=pins))
        is_sidecar = container.restart_policy == "Always"
        if found:
            parts.append(Part(found, gives_back=not is_sidecar))
        if is_sidecar:
            _add(sidecars, found)
        else:
            _raise(peak, {name: amount + sidecars.get(name, 0) for name, amount in found.items()})
    _add(run, sidecars)
    for container in spec.containers or ():
        found = dict(_of_container(container, pins=pins))
        if found:
            parts.append(Part(found))
        _add(run, found)
    _raise(run, peak)
    return AlignedDemand(run, tuple(parts))


def _has_own_resources(spec: objects.PodSpec) -> bool:
    own = spec.resources
    return own is not None and any(is_pod_level(name) for name in (*(own.requests or ()), *(own.limits or ())))


def _of_container(container: objects.Container, *, pins: bool) -> Iterator[tuple[str, int]]:
    resources = container.resources
    if resources is None:
        return
    for name, amount in (amounts(resources.limits) | amounts(resources.requests)).items():
        if not amount or name in _NEVER:
            continue
        if name == "cpu":
            if pins and amount % _MILLIS == 0:
                yield name, amount
        elif pins or not (name == "memory" or name.startswith("hugepages-")):
            yield name, amount


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)
