"""What an engine of many clusters has to serve and to allow, held against what its API server says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kube_policy_scheduler.fleet.live_answers import NeededApi, ServedApi
from kube_policy_scheduler.tooling.doctor.access import LEASES, Permission
from kube_policy_scheduler.tooling.doctor.findings import Finding, Status
from kube_policy_scheduler.wording import some

_READ = ("list", "watch")
_WORK, _CLUSTERS = "work.karmada.io", "cluster.karmada.io"
_KUEUE, _INVENTORY, _OCM = "kueue.x-k8s.io", "multicluster.x-k8s.io", "cluster.open-cluster-management.io"
EVENTS = tuple(
    Permission("events.k8s.io", "events", verb, otherwise="no events are written") for verb in ("create", "patch")
)


@dataclass(frozen=True, slots=True)
class EngineNeeds:
    """What an engine is for the decision maker."""

    product: str
    """With the versions that it works with."""
    apis: tuple[NeededApi, ...]
    permissions: tuple[Permission, ...]
    manifests: str
    """What grants the permissions."""


def _lease(namespace: str, name: str) -> tuple[Permission, ...]:
    return (
        Permission(LEASES, "leases", "create", namespace),
        *(Permission(LEASES, "leases", verb, namespace, name) for verb in ("get", "update")),
    )


_BINDINGS = ("resourcebindings", "clusterresourcebindings")
_BINDING_FIELDS = ("spec.schedulerName", "spec.placement", "spec.clusters.name", "spec.clusters.replicas")
_BINDING_STATUS = (
    "status.conditions", "status.schedulerObservedGeneration", "status.schedulerObservingAffinityName",
    "status.lastScheduledTime",
)  # fmt: skip
KARMADA = EngineNeeds(
    "Karmada 1.18 or newer",
    (
        NeededApi(_CLUSTERS, "v1alpha1", "clusters"),
        *(NeededApi(_WORK, "v1alpha2", kind, (*_BINDING_FIELDS, *_BINDING_STATUS)) for kind in _BINDINGS),
        *(NeededApi(_WORK, "v1alpha2", f"{kind}/status") for kind in _BINDINGS),
    ),
    (
        *(Permission(_CLUSTERS, "clusters", verb) for verb in ("get", *_READ)),
        *(Permission(_WORK, kind, verb) for kind in _BINDINGS for verb in ("get", *_READ, "patch")),
        *(Permission(_WORK, f"{kind}/status", "patch") for kind in _BINDINGS),
        *EVENTS,
    ),
    "deploy/fleet/control-plane",
)
"""Besides the lease, whose namespace the settings may say, and the templates."""
_OF_KUEUE = ("admissionchecks", "multikueueclusters", "multikueueconfigs")
MULTIKUEUE = EngineNeeds(
    "a Kueue that serves kueue.x-k8s.io/v1beta2",
    (
        NeededApi(_KUEUE, "v1beta2", "workloads", ("status.nominatedClusterNames", "status.clusterName")),
        NeededApi(_KUEUE, "v1beta2", "workloads/status"),
        *(NeededApi(_KUEUE, "v1beta2", kind) for kind in _OF_KUEUE),
        NeededApi(
            _INVENTORY, "v1alpha1", "clusterprofiles",
            otherwise="labels and conditions come from the MultiKueueCluster alone, and `cluster.version` is missing",
        ),
    ),
    (
        *(Permission(_KUEUE, "workloads", verb) for verb in ("get", *_READ)),
        Permission(_KUEUE, "workloads/status", "patch"),
        *(Permission(_KUEUE, kind, verb) for kind in _OF_KUEUE for verb in _READ),
        *(
            Permission(_INVENTORY, "clusterprofiles", verb, otherwise="ClusterProfiles are not read") for verb in _READ
        ),
        *EVENTS,
        *_lease("kueue-system", "policy-scheduler-multikueue"),
    ),
    "deploy/fleet/multikueue",
)  # fmt: skip
OCM = EngineNeeds(
    "an Open Cluster Management that serves cluster.open-cluster-management.io/v1beta2",
    (
        NeededApi(_OCM, "v1", "managedclusters"),
        *(NeededApi(_OCM, "v1beta2", kind) for kind in ("managedclustersets", "managedclustersetbindings")),
        NeededApi(
            _OCM, "v1alpha1", "addonplacementscores",
            ("status.scores.name", "status.scores.value", "status.validUntil"),
        ),
        NeededApi(_OCM, "v1alpha1", "addonplacementscores/status"),
        NeededApi(
            _OCM, "v1beta1", "placements",
            ("status.numberOfSelectedClusters", "status.decisionGroups", "status.conditions"),
        ),
        NeededApi(
            _OCM, "v1beta1", "placementdecisions", ("status.decisions.clusterName", "status.decisions.reason")
        ),
    ),
    (
        *(
            Permission(_OCM, kind, verb)
            for kind in (
                "managedclusters", "managedclustersets", "managedclustersetbindings", "placements",
                "placementdecisions",
            )
            for verb in _READ
        ),
        Permission(_OCM, "addonplacementscores", "create"),
        Permission(_OCM, "addonplacementscores/status", "patch"),
        *(Permission(_OCM, "placementdecisions", verb) for verb in ("create", "patch", "delete")),
        *(Permission(_OCM, f"{kind}/status", "patch") for kind in ("placementdecisions", "placements")),
        *EVENTS,
        *_lease("open-cluster-management-hub", "policy-scheduler-ocm"),
    ),
    "deploy/fleet/ocm",
)  # fmt: skip
CLUSTER_PROFILES = EngineNeeds(
    "a cluster manager that keeps ClusterProfiles",
    (
        NeededApi(_INVENTORY, "v1alpha1", "clusterprofiles"),
        NeededApi(
            _INVENTORY, "v1alpha1", "placementdecisions",
            ("decisions.clusterProfileRef.name", "decisions.clusterProfileRef.namespace", "schedulerName"),
        ),
    ),
    tuple(Permission(_INVENTORY, kind, verb) for kind in ("clusterprofiles", "placementdecisions") for verb in _READ),
    "deploy/fleet/clusterprofile",
)  # fmt: skip
"""Besides what the namespace of the ClusterProfiles allows, which the settings say."""
ENGINES: Mapping[str, EngineNeeds] = MappingProxyType(
    {"karmada": KARMADA, "multikueue": MULTIKUEUE, "ocm": OCM, "clusterprofile": CLUSTER_PROFILES}
)
"""By the name that `policy-scheduler fleet --for` has."""


def engine_findings(needs: EngineNeeds, answers: Sequence[ServedApi]) -> Iterator[Finding]:
    """Say which kinds are missing, served in another version only, or lack fields that are written.

    answers: one for each of `needs.apis`.
    """
    told = list(_told(needs, answers))
    yield from told
    if not told:
        versions = sorted({f"{each.group}/{each.version}" for each in needs.apis})
        text = f"serves {', '.join(versions)} with all fields that are written: the versions that are tested"
        yield Finding("engine", "API server", Status.OK, text)


def _told(needs: EngineNeeds, answers: Sequence[ServedApi]) -> Iterator[Finding]:
    missing: dict[str, list[str]] = {}
    for needed, answer in zip(needs.apis, answers, strict=True):
        subject = str(needed)
        if answer.problem:
            yield Finding("engine", subject, Status.UNCHECKED, f"whether it is served: {answer.problem}")
        elif not answer.is_served:
            where = f"only in {', '.join(answer.versions)}" if answer.versions else ""
            if needed.version in answer.versions:
                where = ""
            text = f"is not served in {needed.version}{f', {where}' if where else ''}"
            if needed.otherwise:
                yield Finding("engine", subject, Status.OK, f"{text}: {needed.otherwise}")
            else:
                missing.setdefault(text, []).append(subject)
        elif answer.unknown:
            text = f"has no {', '.join(answer.unknown)} in {needed.version}: the API server drops what is written there"
            yield Finding("engine", subject, Status.PROBLEM, text, advice=f"update it: this needs {needs.product}")
        elif answer.unchecked:
            text = f"whether it has all fields that are written: {answer.unchecked}"
            yield Finding("engine", subject, Status.UNCHECKED, text)
    for text, subjects in missing.items():
        advice = f"use the kubeconfig of the API server that has it, or install {needs.product}"
        yield Finding("engine", some(subjects), Status.PROBLEM, text, advice=advice)
