"""The beginning of a simulation: what a saved fleet holds, as the simulation takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.fleet.karmada.decision_maker import Key, Template
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.karmada.reading import BindingError, workload
from kube_policy_scheduler.fleet.karmada.triggers import OWNED_BY, is_decided
from kube_policy_scheduler.tooling.fleet_simulation.scenario import SCHEDULER, FleetScenario, WorkloadArrival
from kube_policy_scheduler.wording import plural

TemplateKey = tuple[str, str, str, str]
"""Group and version, kind, namespace and name."""


def scenario_of(
    clusters: Sequence[KarmadaCluster],
    bindings: Sequence[ResourceBinding],
    templates: Mapping[TemplateKey, ObjectMeta],
    arrivals: Sequence[WorkloadArrival],
    *,
    starts_at: float,
    duration: float | None,
) -> FleetScenario:
    """Return a scenario without events.

    Args:
        clusters: as saved.
        bindings: as saved; what nobody decides, as it is suspended or follows another one, is left out.
        templates: metadata of what the bindings name.
        arrivals: what comes.
        starts_at: the beginning, Unix seconds.
        duration: seconds; None: until nothing changes any more.
    """
    kept, read, left = list[ResourceBinding](), dict[Key, Template](), 0
    for each in bindings:
        try:
            workload(each)
        except BindingError:
            left += 1
            continue
        if not is_decided(each):
            left += 1
            continue
        of = each.spec.resource
        meta = templates.get((of.api_version, of.kind, of.namespace, of.name))
        key = each.metadata.namespace, each.metadata.name
        if meta is not None:
            read[key] = Template(meta.labels or {}, meta.annotations or {})
        kept.append(_served(each))
    graded = sum(bool(each.spec.resource_models) and each.status.resource_summary is not None for each in clusters)
    notes = []
    if left:
        notes.append(
            f"{plural(left, 'binding')} left out: suspended, without a placement, or with one that cannot be read"
        )
    if graded:
        notes.append(
            f"{plural(graded, 'cluster')} with resource models: room is computed from what is free in sum, as nobody"
            " knows what each grade of nodes would have left"
        )
    by_name = sorted(clusters, key=lambda each: each.metadata.name)
    return FleetScenario(
        tuple(by_name), tuple(kept), read, starts_at, tuple(arrivals), duration=duration, notes=tuple(notes)
    )


def _served(binding: ResourceBinding) -> ResourceBinding:
    """Return a binding as one that the simulated decision maker serves."""
    labels = {**(binding.metadata.labels or {}), OWNED_BY[0]: "simulated"}
    meta = replace(binding.metadata, labels=labels, generation=binding.metadata.generation or 1)
    return replace(binding, metadata=meta, spec=replace(binding.spec, scheduler_name=SCHEDULER))
