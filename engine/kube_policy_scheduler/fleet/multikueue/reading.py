"""From Kueue's objects to workloads and clusters, and whether a Workload waits for a nomination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kube_policy_scheduler.cluster.objects.structs import OwnerReference
from kube_policy_scheduler.cluster.requests import incoming
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.fleet import model
from kube_policy_scheduler.fleet.multikueue.objects import (
    AdmissionCheck,
    KueueCondition,
    KueueWorkload,
    MultiKueueCluster,
    MultiKueueConfig,
    PodSet,
)
from kube_policy_scheduler.quantities.quantity import NANO, QuantityError, column_scale
from kube_policy_scheduler.times import unix_seconds

CONTROLLER = "kueue.x-k8s.io/multikueue"
"""`spec.controllerName` of the admission checks of MultiKueue."""
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
"""Label: the LocalQueue. Policies read it whether or not the Workload has it: its queue is a field."""
INACTIVE = TaintKey("kueue.x-k8s.io/inactive", "", "NoSchedule")
"""Of a cluster that the manager is not connected to, so that it is rejected as a cluster with a taint is."""
_READY, _PENDING = "Ready", "Pending"


def waits_for_nomination(workload: KueueWorkload, checks: Mapping[str, AdmissionCheck]) -> AdmissionCheck | None:
    """Return the check of MultiKueue that a nomination would serve; None if nothing is to be nominated.

    The quota is reserved, the check is pending, all others are ready, no cluster is chosen, and the job is not at its
    end.
    """
    status, meta = workload.status, workload.metadata
    conditions = {each.type: each.status == "True" for each in status.conditions or ()}
    if (
        meta.deletion_timestamp is not None
        or workload.spec.active is False
        or status.cluster_name
        or conditions.get("Finished")
        or not conditions.get("QuotaReserved")
    ):
        return None
    found: AdmissionCheck | None = None
    for each in status.admission_checks or ():
        check = checks.get(each.name)
        if check is not None and check.spec.controller_name == CONTROLLER:
            if each.state != _PENDING:
                return None
            found = check
        elif each.state != _READY:
            return None
    return found


def reserved_since(workload: KueueWorkload) -> float | None:
    """Return the Unix seconds at which the quota was reserved; None if nobody wrote it."""
    for each in workload.status.conditions or ():
        if each.type == "QuotaReserved":
            return unix_seconds(each.last_transition_time)
    return None


def config_name(check: AdmissionCheck) -> str:
    """Return the name of the MultiKueueConfig of a check, "" if it names none."""
    parameters = check.spec.parameters
    return parameters.name if parameters is not None and parameters.kind == MultiKueueConfig.__name__ else ""


def workload(written: KueueWorkload, *, has: Mapping[str, int], attempts: int = 0) -> model.Workload:
    """Return the job of a Workload, with its kind, its name and what its pods request; a job of several kinds of pods
    has them as components.

    Args:
        written: the Workload.
        has: the clusters that it is nominated to and keeps, with any number of replicas.
        attempts: the number of failed attempts.
    """
    meta, spec, job = written.metadata, written.spec, _job(written)
    sets = spec.pod_sets or ()
    components = tuple(model.Component(each.name, max(0, each.count), _requests(each)) for each in sets)
    return model.Workload(
        kind=job.kind if job is not None else "Workload",
        name=job.name if job is not None else meta.name,
        namespace=meta.namespace,
        api_version=job.api_version if job is not None else "",
        uid=meta.uid,
        labels={QUEUE_NAME: spec.queue_name} | (meta.labels or {}),
        annotations=meta.annotations or {},
        replicas=sum(each.replicas for each in components),
        requests=components[0].requests if len(components) == 1 else None,
        components=components if len(components) > 1 else (),
        priority=spec.priority or 0,
        priority_class=spec.priority_class_ref.name if spec.priority_class_ref is not None else "",
        has=has,
        created=unix_seconds(meta.creation_timestamp),
        attempts=attempts,
    )


def _job(written: KueueWorkload) -> OwnerReference | None:
    owners = written.metadata.owner_references or ()
    return next((each for each in owners if each.controller), owners[0] if owners else None)


def _requests(pods: PodSet) -> Mapping[str, int]:
    """Return what each pod requests; nothing if an amount is none."""
    try:
        counted = incoming(pods.template.spec).requests
    except QuantityError:
        return {}
    return {name: amount * 10 ** (NANO - column_scale(name)) for name, amount in counted.items()}


def cluster(written: MultiKueueCluster) -> model.FleetCluster:
    """Return a worker cluster; it is ready if the manager is connected to it."""
    meta = written.metadata
    conditions = {each.type: _condition(each) for each in written.status.conditions or ()}
    if "Active" in conditions:
        conditions.setdefault("Ready", conditions["Active"])
    made = model.FleetCluster(
        name=meta.name,
        labels=meta.labels or model.NOTHING,
        annotations=meta.annotations or model.NOTHING,
        taints=(INACTIVE,),
        conditions=conditions,
        deleting=meta.deletion_timestamp is not None,
        summarized=False,
    )
    return replace(made, taints=()) if made.ready else made


def _condition(written: KueueCondition) -> model.ClusterCondition:
    return model.ClusterCondition(written.status, unix_seconds(written.last_transition_time))


def clusters_of(
    config: MultiKueueConfig | None, known: Mapping[str, model.FleetCluster]
) -> Sequence[model.FleetCluster]:
    """Return the clusters of a configuration that exist, in the order of their names."""
    names = config.spec.clusters or () if config is not None else ()
    return tuple(known[name] for name in sorted(set(names)) if name in known)
