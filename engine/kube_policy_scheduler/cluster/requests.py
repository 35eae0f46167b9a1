"""What a pod requests of a node: effective resource requests, in column units (cpu in millicores, others in units).

The rules are those of `component-helpers/resource` (PodRequests): sidecars, init containers, pod-level
resources, overhead and in-place resize, which differs between versions. As there, quantities are added exactly and only
the pod's sum is rounded up.

One thing is not copied: there, a pod-level request written as a binary fraction ("0.5Gi") grows by the overhead
each time it is read, because both share one number: its value depends on how often it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.label_syntax import is_qualified_name
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, Feature, KubernetesRules
from kube_policy_scheduler.quantities.quantity import NANO, amount, column_scale, nanos, rounded
from kube_policy_scheduler.remembered import remembered

Amounts = dict[str, int]
"""Amount by resource name, in column units; resources that are not counted are left out."""
Nanos = dict[str, int]
"""Exact amount by resource name, in billionths; a named zero differs from an absent name."""

DEFAULT_CPU_MILLIS = 100
"""What least_allocated assumes of a container that names no cpu request."""
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
"""What least_allocated assumes of a container that names no memory request."""
SCORING_DEFAULTS: Mapping[str, int] = {
    "cpu": DEFAULT_CPU_MILLIS * 10 ** (NANO - 3),
    "memory": DEFAULT_MEMORY_BYTES * 10**NANO,
}
"""The same in billionths, by resource."""

NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class PodRequests(msgspec.Struct, frozen=True):
    """What one pod counts for on its node."""

    requests: Mapping[str, int]
    """Column units by resource; zeros are left out."""
    nonzero_cpu_millis: int
    nonzero_memory_bytes: int


@remembered(most=4096)
def is_scalar(resource: str) -> bool:
    """Return whether the scheduler counts this resource besides the native ones (`IsScalarResourceName`)."""
    if "kubernetes.io/" in resource or resource.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return is_extended(resource)


def is_extended(resource: str) -> bool:
    """Return whether this is an extended resource such as `nvidia.com/gpu` (`IsExtendedResourceName`)."""
    if "/" not in resource or "kubernetes.io/" in resource or resource.startswith("requests."):
        return False
    return is_qualified_name(f"requests.{resource}")


def counted(resource: str) -> bool:
    """Return whether the scheduler looks at this resource."""
    return resource in NATIVE or is_scalar(resource)


def is_pod_level(resource: str) -> bool:
    """Return whether a pod-level request for this resource takes the place of the containers'."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def amounts(resources: objects.Resources | None) -> Amounts:
    """Return the counted resources of an API map in column units."""
    return {name: amount(name, text) for name, text in (resources or {}).items() if counted(name)}


def quality_of_service(spec: objects.PodSpec) -> str:
    """Return the class by the rules of `ComputePodQOS`: only cpu and memory count, those of the pod if it has any."""
    own = _cpu_and_memory(spec.resources)
    if any(own):
        settings = [own]
    else:
        settings = [
            _cpu_and_memory(each.resources) for each in (*(spec.containers or ()), *(spec.init_containers or ()))
        ]
    if not any(requests or limits for requests, limits in settings):
        return "BestEffort"
    for requests, limits in settings:
        if set(limits) != {"cpu", "memory"} or any(requests.get(r, limits[r]) != limits[r] for r in limits):
            return "Burstable"
    return "Guaranteed"


def _cpu_and_memory(resources: objects.ResourceRequirements | None) -> tuple[dict[str, int], dict[str, int]]:
    requests = amounts(resources.requests) if resources else {}
    limits = amounts(resources.limits) if resources else {}
    return (
        {r: v for r, v in requests.items() if r in ("cpu", "memory") and v},
        {r: v for r, v in limits.items() if r in ("cpu", "memory") and v},
    )


def incoming(spec: objects.PodSpec) -> PodRequests:
    """Return the demand of a pod that is to be scheduled: by its spec alone.

    The scoring part ignores pod-level resources, as kube-scheduler's resource scorer does.
    """
    regular, init = _by_spec(spec)
    overhead = _exact(spec.overhead)
    total = _added(_with_pod_level(_aggregate(regular, init), _pod_level(spec)), overhead)
    return _demand(total, _added(_aggregate(*_scored(regular, init), SCORING_DEFAULTS), overhead))


def scoring_request(spec: objects.PodSpec) -> Nanos:
    """Return what scoring counts for a pod that is to be scheduled: defaults per container, no pod-level resources."""
    regular, init = _by_spec(spec)
    return _added(_aggregate(regular, init, SCORING_DEFAULTS), _exact(spec.overhead))


def existing(pod: objects.Pod, rules: KubernetesRules = DEFAULT_RULES) -> PodRequests:
    """Return the demand of a pod that is on a node: after an in-place resize, the most that it may still hold."""
    sums_are_compared = Feature.POD_REQUESTS_MAX_OF_SUMS in rules
    held = _sums_held(pod) if sums_are_compared else _containers_held(pod)
    pod_level = _pod_level_held(pod, others_too=sums_are_compared)
    overhead = _exact(pod.spec.overhead)
    total = _added(_with_pod_level(held.largest(), pod_level), overhead)
    # With pod-level requests a default is assumed only for what neither level names.
    defaults = {k: v for k, v in SCORING_DEFAULTS.items() if not pod_level or k not in total}
    scoring = _added(_with_pod_level(held.scored().largest(defaults), pod_level), overhead)
    return _demand(total, scoring)


# --- in-place resize ------------------------------------------------------------------------------------

ByContainer = tuple[list[Nanos], list[tuple[bool, Nanos]]]
"""Amounts of the regular containers, and of the init containers with whether they are sidecars."""


class _Held(NamedTuple):
    """What a pod on a node may hold: the largest of these counts, resource by resource."""

    by_container: Sequence[ByContainer]
    """Each is added up."""
    of_pod: Sequence[Nanos] = ()
    """Sums that the kubelet reports."""

    def largest(self, defaults: Mapping[str, int] | None = None) -> Nanos:
        """Return the largest of all; `defaults` apply to what a container does not name."""
        found: Nanos = {}
        for regular, init in self.by_container:
            _raised(found, _aggregate(regular, init, defaults))
        for amounts_of_pod in self.of_pod:
            _raised(found, amounts_of_pod)
        return found

    def scored(self) -> _Held:
        """Return the same without what scoring does not count."""
        return _Held(
            [_scored(regular, init) for regular, init in self.by_container],
            [{name: held[name] for name in SCORING_DEFAULTS if name in held} for held in self.of_pod],
        )


def is_resize_infeasible(conditions: Iterable[objects.PodCondition] | None) -> bool:
    """Return whether the kubelet said that the resize which the spec asks for can never be done."""
    for each in conditions or ():
        if each.type == "PodResizePending":
            return each.reason == "Infeasible"
    return False


def _statuses(pod: objects.Pod) -> dict[str, objects.ContainerStatus]:
    status = pod.status
    return {s.name: s for s in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))}


def _containers_held(pod: objects.Pod) -> _Held:
    """Return for each container the largest of spec, actuated and allocated (up to Kubernetes 1.36)."""
    infeasible, statuses = is_resize_infeasible(pod.status.conditions), _statuses(pod)

    def held(container: objects.Container, *, resizable: bool) -> Nanos:
        wanted = _requests(container.resources)
        current = statuses.get(container.name) if resizable else None
        if current is None or current.resources is None:
            return wanted
        found = _raised(_requests(current.resources), _exact(current.allocated_resources))
        return found if infeasible else _raised(found, wanted)

    regular = [held(c, resizable=True) for c in pod.spec.containers or ()]
    init = [(_is_sidecar(c), held(c, resizable=_is_sidecar(c))) for c in pod.spec.init_containers or ()]
    return _Held([(regular, init)])


def _sums_held(pod: objects.Pod) -> _Held:
    """Return three sums over the containers: what they want, what was allocated, and what is in force (since 1.37)."""
    spec, status = pod.spec, pod.status
    infeasible, statuses = is_resize_infeasible(status.conditions), _statuses(pod)

    def wanted(container: objects.Container) -> Nanos:
        return _requests(container.resources)

    def allocated(container: objects.Container) -> Nanos:
        current = statuses.get(container.name)
        if current is not None and current.allocated_resources is not None:
            return _exact(current.allocated_resources)
        return {} if infeasible else wanted(container)

    def actuated(container: objects.Container) -> Nanos:
        current = statuses.get(container.name)
        if current is not None and current.resources is not None and current.resources.requests is not None:
            return _exact(current.resources.requests)
        return allocated(container)

    def of(held: Callable[[objects.Container], Nanos]) -> ByContainer:
        regular = [held(c) for c in spec.containers or ()]
        return regular, [(_is_sidecar(c), held(c)) for c in spec.init_containers or ()]

    by_container = [] if infeasible else [of(wanted)]
    in_force = status.resources.requests if status.resources is not None else None
    if status.allocated_resources is not None and in_force is not None:
        return _Held(by_container, [_exact(status.allocated_resources), _exact(in_force)])
    return _Held([*by_container, of(allocated), of(actuated)])


def _pod_level_held(pod: objects.Pod, *, others_too: bool) -> Nanos:
    """Return what takes the place of the containers' amounts. others_too: also what the spec of the pod does not name.

    The kubelet reports defaults that it filled in for the pod.
    """
    spec, status, found = pod.spec, pod.status, _pod_level(pod.spec)
    if not found or status.resources is None:
        return found
    now = _raised(_requests(status.resources), _exact(status.allocated_resources))
    if not is_resize_infeasible(status.conditions):
        _raised(now, _requests(spec.resources))
    if others_too:
        return {name: value for name, value in now.items() if is_pod_level(name)}
    return {name: now.get(name, 0) for name in found}


# --- adding up ------------------------------------------------------------------------------------------


def _exact(resources: objects.Resources | None) -> Nanos:
    return {name: nanos(text) for name, text in (resources or {}).items() if counted(name)}


def _requests(resources: objects.ResourceRequirements | None) -> Nanos:
    return _exact(resources.requests) if resources is not None else {}


def _is_sidecar(container: objects.Container) -> bool:
    return container.restart_policy == "Always"


def _by_spec(spec: objects.PodSpec) -> tuple[list[Nanos], list[tuple[bool, Nanos]]]:
    """Return the requests of regular containers, and of init containers with whether they are sidecars."""
    regular = [_requests(c.resources) for c in spec.containers or ()]
    return regular, [(_is_sidecar(c), _requests(c.resources)) for c in spec.init_containers or ()]


def _pod_level(spec: objects.PodSpec) -> Nanos:
    return {name: value for name, value in _requests(spec.resources).items() if is_pod_level(name)}


def _add(total: Nanos, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raised(total: Nanos, floor: Mapping[str, int]) -> Nanos:
    """Raise `total` to at least `floor` in every resource; return it."""
    for name, value in floor.items():
        if name not in total or value > total[name]:
            total[name] = value
    return total


def _aggregate(
    regular: Iterable[Nanos], init: Iterable[tuple[bool, Nanos]], defaults: Mapping[str, int] | None = None
) -> Nanos:
    """Combine per-container requests: regular and sidecar containers add up, init containers need their peak.

    `defaults` apply to what a container does not name.
    """
    assumed = defaults or {}
    run: Nanos = {}
    for requests in regular:
        _add(run, {**assumed, **requests})
    sidecars: Nanos = {}
    peak: Nanos = {}
    for is_sidecar, named in init:
        requests = {**assumed, **named}
        if is_sidecar:
            _add(run, requests)
            _add(sidecars, requests)
            _raised(peak, sidecars)
        else:
            _add(requests, sidecars)
            _raised(peak, requests)
    return _raised(run, peak)


def _with_pod_level(total: Nanos, pod_level: Mapping[str, int]) -> Nanos:
    total.update(pod_level)
    return total


def _added(total: Nanos, overhead: Nanos) -> Nanos:
    _add(total, overhead)
    return total


def _scored(
    regular: Sequence[Nanos], init: Sequence[tuple[bool, Nanos]]
) -> tuple[list[Nanos], list[tuple[bool, Nanos]]]:
    """Return the same without what scoring does not count: a pod may name any number of resources."""

    def of(requests: Nanos) -> Nanos:
        return {name: requests[name] for name in SCORING_DEFAULTS if name in requests}

    return [of(requests) for requests in regular], [(is_sidecar, of(requests)) for is_sidecar, requests in init]


def _demand(total: Nanos, scoring: Nanos) -> PodRequests:
    requests = {name: rounded(value, column_scale(name)) for name, value in total.items() if value}
    return PodRequests(requests, rounded(scoring.get("cpu", 0), 3), rounded(scoring.get("memory", 0), 0))
