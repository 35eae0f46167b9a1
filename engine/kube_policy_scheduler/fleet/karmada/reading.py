"""From Karmada's objects to workloads and clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kube_policy_scheduler.cluster.label_syntax import requirement_error
from kube_policy_scheduler.cluster.objects.structs import Resources
from kube_policy_scheduler.cluster.selectors import EVERYTHING, Selector, SelectorError, label_selector
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.fleet import model
from kube_policy_scheduler.fleet.karmada import objects
from kube_policy_scheduler.quantities.quantity import QuantityError, nanos
from kube_policy_scheduler.times import unix_seconds


class BindingError(ValueError):
    """A binding cannot be read: its placement has a form that Karmada does not know, or a quantity is none."""


def placement_object(written: Mapping[str, Any] | None) -> objects.Placement:
    """Return the placement of a binding.

    Raises:
        BindingError: a part of it has another form than Karmada's.
    """
    try:
        return msgspec.convert(written or {}, objects.Placement)
    except msgspec.ValidationError as error:
        raise BindingError(f"spec.placement cannot be read: {error}") from error


def placement(written: Mapping[str, Any] | None) -> model.Placement:
    """Return what the owner of a binding asks for.

    Raises:
        BindingError: a part of it has another form than Karmada's.
    """
    asked = placement_object(written)
    return model.Placement(
        affinity=affinity(asked.cluster_affinity) if asked.cluster_affinity is not None else None,
        terms=tuple(
            model.AffinityTerm(each.affinity_name, affinity(each), tuple(map(affinity, each.overflow_affinities or ())))
            for each in asked.cluster_affinities or ()
        ),
        tolerations=tuple(each for each in asked.cluster_tolerations or () if each.operator not in ("Lt", "Gt")),
        spread=tuple(
            model.SpreadConstraint(each.spread_by_field, each.spread_by_label, each.min_groups, each.max_groups)
            for each in asked.spread_constraints or ()
        ),
        scheduling=_scheduling(asked.replica_scheduling),
    )


def affinity(written: objects.ClusterAffinity) -> model.ClusterAffinity:
    """Return a cluster affinity; one with a selector that is not valid matches no cluster.

    Karmada reads tests of provider and region as label selectors: they need values, and these must be those of labels.
    """
    fields = (written.field_selector.match_expressions if written.field_selector is not None else None) or ()
    is_valid = all(
        each.key == "zone" or requirement_error(each.key, each.operator, each.values or ()) is None for each in fields
    )
    return model.ClusterAffinity(
        labels=_selector(written) if is_valid else None,
        fields=tuple(model.FieldTest(each.key, each.operator, frozenset(each.values or ())) for each in fields),
        names=frozenset(written.cluster_names or ()),
        exclude=frozenset(written.exclude or ()),
    )


def _selector(written: objects.ClusterAffinity) -> Selector | None:
    if written.label_selector is None:
        return EVERYTHING
    try:
        return label_selector(written.label_selector)
    except SelectorError:
        return None


def _scheduling(written: objects.ReplicaSchedulingStrategy | None) -> model.ReplicaScheduling | None:
    if written is None:
        return None
    prefers = written.weight_preference
    return model.ReplicaScheduling(
        type=written.replica_scheduling_type or "Duplicated",
        preference=written.replica_division_preference,
        weighted=prefers is not None,
        weights=tuple(
            model.StaticWeight(affinity(each.target_cluster), each.weight)
            for each in (prefers.static_weight_list if prefers is not None else None) or ()
        ),
        dynamic=prefers.dynamic_weight if prefers is not None else "",
    )


def workload(binding: objects.ResourceBinding) -> model.Workload:
    """Return what a binding places; its template is not read.

    Raises:
        BindingError: the binding has another form than Karmada's.
    """
    spec, status = binding.spec, binding.status
    asked, requirements, groups = spec.resource, spec.replica_requirements, spec.workload_affinity_groups
    return model.Workload(
        kind=asked.kind,
        name=asked.name,
        namespace=asked.namespace,
        api_version=asked.api_version,
        uid=asked.uid,
        replicas=max(0, spec.replicas),
        requests=_requests(requirements.resource_request) if requirements is not None else None,
        components=tuple(_component(each) for each in spec.components or ()),
        priority=spec.schedule_priority.priority if spec.schedule_priority is not None else 0,
        priority_class=requirements.priority_class_name if requirements is not None else "",
        has={each.name: max(0, each.replicas) for each in spec.clusters or ()},
        evicting=tuple(
            model.EvictionTask(each.from_cluster, each.replicas or 0, each.reason, each.producer)
            for each in spec.graceful_eviction_tasks or ()
        ),
        health={each.cluster_name: each.health for each in status.aggregated_status or ()},
        placement=placement(spec.placement),
        observed_term=status.scheduler_observed_affinity_name,
        fresh=is_fresh(binding),
        created=unix_seconds(binding.metadata.creation_timestamp),
        decided=unix_seconds(status.last_scheduled_time),
        affinity_group=groups.affinity_group if groups is not None else "",
        anti_affinity_group=groups.anti_affinity_group if groups is not None else "",
    )


def is_fresh(binding: objects.ResourceBinding) -> bool:
    """Return whether somebody asked for a fresh decision since the last one."""
    asked, last = unix_seconds(binding.spec.reschedule_triggered_at), unix_seconds(binding.status.last_scheduled_time)
    return asked is not None and last is not None and asked > last


def _component(written: objects.Component) -> model.Component:
    requirements = written.replica_requirements
    requests = _requests(requirements.resource_request) if requirements is not None else {}
    return model.Component(written.name, max(0, written.replicas), requests)


def _requests(written: Resources | None) -> dict[str, int]:
    try:
        return {name: nanos(amount) for name, amount in (written or {}).items()}
    except QuantityError as error:
        raise BindingError(f"a request of spec cannot be read: {error}") from error


def cluster(written: objects.KarmadaCluster) -> model.FleetCluster:
    """Return a cluster; an invalid quantity counts as missing."""
    spec, status, meta = written.spec, written.status, written.metadata
    summary, nodes = status.resource_summary, status.node_summary
    has = summary or objects.ResourceSummary()
    return model.FleetCluster(
        name=meta.name,
        labels=meta.labels or model.NOTHING,
        annotations=meta.annotations or model.NOTHING,
        provider=spec.provider,
        region=spec.region,
        zones=tuple(spec.zones or ()),
        taints=tuple(TaintKey(each.key, each.value, each.effect) for each in spec.taints or ()),
        version=status.kubernetes_version,
        sync_mode=spec.sync_mode,
        conditions={
            each.type: model.ClusterCondition(each.status, unix_seconds(each.last_transition_time))
            for each in status.conditions or ()
        },
        deleting=meta.deletion_timestamp is not None,
        nodes_ready=nodes.ready_num if nodes is not None else None,
        nodes_total=nodes.total_num if nodes is not None else None,
        summarized=summary is not None,
        allocatable=_amounts(has.allocatable),
        allocated=_amounts(has.allocated),
        allocating=_amounts(has.allocating),
        grades=_grades(spec.resource_models or (), has.allocatable_modelings or ()),
        apis=frozenset(
            (each.group_version, served.kind)
            for each in status.api_enablements or ()
            for served in each.resources or ()
        ),
    )


def _amounts(written: Resources | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, amount in (written or {}).items():
        try:
            found[name] = nanos(amount)
        except QuantityError:
            continue
    return found


def _grades(
    models: Iterable[objects.ResourceModel], counted: Iterable[objects.AllocatableModeling]
) -> tuple[model.ResourceGrade, ...]:
    """Return the grades, in their order; none if nodes are not counted by them, or a count is negative."""
    counts: dict[int, int] = {}
    for each in counted:
        if each.count < 0:
            return ()
        counts[each.grade] = counts.get(each.grade, 0) + each.count
    if not counts:
        return ()
    least = {each.grade: _amounts({part.name: part.min for part in each.ranges or ()}) for each in models}
    return tuple(model.ResourceGrade(counts.get(grade, 0), least[grade]) for grade in sorted(least))
