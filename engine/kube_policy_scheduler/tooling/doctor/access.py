"""What the scheduler has to be allowed, held against what an account is allowed; and the API server's clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kube_policy_scheduler.tooling.doctor.admission import AdmissionConfiguration
from kube_policy_scheduler.tooling.doctor.findings import Finding, Status

_READ = ("list", "watch")
_KINDS: Mapping[str, tuple[str, ...]] = {
    "": (
        "nodes", "pods", "namespaces", "services", "replicationcontrollers", "persistentvolumes",
        "persistentvolumeclaims",
    ),
    "apps": ("replicasets", "statefulsets"),
    "policy": ("poddisruptionbudgets",),
    "storage.k8s.io": ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"),
    "resource.k8s.io": ("deviceclasses", "resourceslices", "devicetaintrules", "resourceclaims"),
    "scheduling.k8s.io": ("podgroups", "compositepodgroups"),
    "scheduling.x-k8s.io": ("podgroups",),
    "topology.node.k8s.io": ("noderesourcetopologies",),
}  # fmt: skip
_SKEW_SECONDS = 2.0
"""The API server's time comes in whole seconds, and half a second late."""


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """Something to be allowed."""

    group: str
    resource: str
    """With its subresource: `pods/binding`."""
    verb: str
    namespace: str = ""
    """Empty: all of them."""
    name: str = ""
    """Empty: any."""
    otherwise: str = ""
    """What the scheduler does without it; empty: it does not work."""

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"
        return f"{what} {self.namespace}/{self.name}" if self.name else what


NEEDED: tuple[Permission, ...] = (
    *(Permission(group, resource, verb) for group, kinds in _KINDS.items() for resource in kinds for verb in _READ),
    Permission("", "pods/binding", "create"),
    Permission("", "pods/status", "patch"),
    Permission("scheduling.k8s.io", "podgroups/status", "patch"),
    Permission("scheduling.k8s.io", "compositepodgroups/status", "patch"),
    Permission("", "persistentvolumeclaims", "patch"),
    Permission("", "persistentvolumes", "patch"),
    *(Permission("resource.k8s.io", "resourceclaims", verb) for verb in ("create", "update", "patch", "delete")),
    Permission("resource.k8s.io", "resourceclaims/status", "patch"),
    Permission("resource.k8s.io", "resourceclaims/binding", "patch"),
    Permission("", "pods", "delete"),
    Permission("events.k8s.io", "events", "create"),
    Permission("events.k8s.io", "events", "patch"),
    Permission("authentication.k8s.io", "tokenreviews", "create"),
    Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
    Permission("policy-scheduler.dev", "deviceannotations", "write"),
)
"""What the daemon asks of the API server in the whole cluster."""
LEASES = "coordination.k8s.io"


def to_keep_past_usage(namespace: str, lease: str) -> tuple[Permission, ...]:
    """Return what the daemon needs, too, where queues remember past usage. lease: the one that it is stored in."""
    return _to_keep(namespace, lease, "the past usage of queues (`remember`) is lost at a restart")


def to_move_pods(namespace: str, lease: str) -> tuple[Permission, ...]:
    """Return what the daemon needs, too, where policies say `rebalance`. lease: what was moved is stored in it."""
    lost = "what was moved (`rebalance`) is lost at a restart, so that workloads do not rest"
    evicts = Permission("", "pods/eviction", "create", otherwise="moves (`rebalance`) are planned only")
    return evicts, *_to_keep(namespace, lease, lost)


def _to_keep(namespace: str, lease: str, otherwise: str) -> tuple[Permission, ...]:
    return (
        Permission(LEASES, "leases", "create", namespace, otherwise=otherwise),
        *(Permission(LEASES, "leases", verb, namespace, lease, otherwise) for verb in ("get", "update")),
    )


@dataclass(frozen=True, slots=True)
class Access:
    """What a live API server says."""

    answers: Mapping[Permission, bool | str]
    """Whether it is allowed, or why that could not be asked."""
    skew_seconds: float | str
    """By how much its clock is ahead of ours, or why that is not known."""
    admission: AdmissionConfiguration | str | None = None
    """Which admission webhooks and policies there are, or why that is not known; None: nobody asked."""


def access_findings(access: Access | None, *, manifests: str = "deploy") -> Iterator[Finding]:
    """Look at permissions and clock. access: None: the cluster is a saved one. manifests: what grants permissions."""
    if access is None:
        text = "the cluster is a saved one"
        yield Finding("permissions", "this account", Status.UNCHECKED, text, advice="check the live cluster")
        yield Finding("clocks", "API server", Status.UNCHECKED, text)
        return
    refused = [what for what, answer in access.answers.items() if answer is False]
    denied = [what for what in refused if not what.otherwise]
    unknown = {answer: what for what, answer in access.answers.items() if isinstance(answer, str)}
    if denied:
        text = f"may not {', '.join(_folded(denied))}"
        advice = f"a scheduler with this service account would not work: apply the ClusterRole in {manifests}/"
        yield Finding("permissions", "this account", Status.PROBLEM, text, advice=advice)
    for otherwise in dict.fromkeys(what.otherwise for what in refused if what.otherwise):
        text = f"may not {', '.join(_folded(what for what in refused if what.otherwise == otherwise))}: {otherwise}"
        advice = f"apply the Roles in {manifests}/; if the scheduler is in another namespace, check its account there"
        yield Finding("permissions", "this account", Status.WARNING, text, advice=advice)
    for reason, what in unknown.items():
        yield Finding("permissions", "this account", Status.UNCHECKED, f"whether it may {what}: {reason}")
    if not refused and not unknown:
        yield Finding("permissions", "this account", Status.OK, "has all permissions that a scheduler needs")
    match access.skew_seconds:
        case str(reason):
            yield Finding("clocks", "API server", Status.UNCHECKED, reason)
        case seconds if abs(seconds) > _SKEW_SECONDS:
            direction = "ahead of" if seconds > 0 else "behind"
            text = f"its clock is {abs(seconds):.0f} s {direction} the local clock"
            yield Finding(
                "clocks", "API server", Status.WARNING, text, advice="synchronize the clocks: otherwise ages are wrong"
            )
        case _:
            yield Finding("clocks", "API server", Status.OK, "its clock agrees with the local clock")


def _folded(permissions: Iterable[Permission]) -> list[str]:
    """Join verbs of one resource: `list/watch nodes`."""
    verbs: dict[Permission, list[str]] = {}
    for one in permissions:
        verbs.setdefault(replace(one, verb=""), []).append(one.verb)
    return [str(replace(one, verb="/".join(mine))) for one, mine in verbs.items()]
