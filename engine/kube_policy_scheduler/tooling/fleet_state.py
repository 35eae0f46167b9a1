"""A fleet from the objects of its control plane: clusters, bindings, and the templates that these name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, closest
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.karmada.reading import BindingError, cluster, workload
from kube_policy_scheduler.fleet.karmada.triggers import is_decided, trigger
from kube_policy_scheduler.fleet.model import Fleet, FleetCluster, Workload
from kube_policy_scheduler.fleet.running import RunningWorkloads
from kube_policy_scheduler.tooling.fleet_members import is_of_member, members_in, with_members
from kube_policy_scheduler.wording import some

BINDINGS = ("ResourceBinding", "ClusterResourceBinding")
_CLUSTER_GROUP = "cluster.karmada.io/"
_MOST_NAMES = 8


class UnknownWorkloadError(Exception):
    """No binding places a workload of that name, or several do; `str()` says which there are."""


class BoundWorkload(msgspec.Struct, frozen=True):
    """A workload, and what its binding says of decisions."""

    workload: Workload
    is_decided: bool
    """Whether a scheduler decides it: it follows no others, is not suspended, and stays."""
    is_due: bool
    """Whether it is to be decided now, though nobody changes it."""


class FleetState(msgspec.Struct, frozen=True):
    """The clusters and the workloads of a fleet."""

    fleet: Fleet
    bound: tuple[BoundWorkload, ...]

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Return the workloads, in the order of the bindings."""
        return tuple(each.workload for each in self.bound)

    def named(self, name: str, *, namespace: str | None = None) -> Workload:
        """Return a workload by `NAME`, `NAMESPACE/NAME` or `KIND/NAME`, in any case of the kind.

        Raises:
            UnknownWorkloadError: there is none, or there are several.
        """
        within, _, short = name.rpartition("/")
        found = [
            each
            for each in self.workloads
            if each.name == short
            and (not within or within == each.namespace or within.lower() == each.kind.lower())
            and (namespace is None or each.namespace == namespace)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            listed = some(sorted(f"{each.kind} {_shown(each)}" for each in found), limit=_MOST_NAMES)
            raise UnknownWorkloadError(f"several workloads are called `{name}`: {listed}; write KIND/NAME, or use -n")
        known = sorted({_shown(each) for each in self.workloads})
        meant = closest(name, known)
        advice = f"did you mean `{meant}`?" if meant else f"there are {some(known, limit=_MOST_NAMES)}"
        raise UnknownWorkloadError(
            f"no binding places a workload `{name}`: {advice if known else 'the files have no ResourceBindings'}"
        )


def _shown(each: Workload) -> str:
    return f"{each.namespace}/{each.name}" if each.namespace else each.name


def is_cluster(each: FixtureObject) -> bool:
    """Return whether an object is a cluster of Karmada; other projects have kinds of that name, too."""
    return each.kind == "Cluster" and str(each.value.get("apiVersion", "")).startswith(_CLUSTER_GROUP)


def fleet_state(objects: Iterable[FixtureObject], *, at: float | None = None) -> FleetState:
    """Return the fleet that objects make up; what is no cluster, binding, template of one, or node or pod of a cluster
    does not matter.

    at: when the nodes and pods were read, Unix seconds; None: that is not known.

    Raises:
        DocumentError: an object cannot be read; all problems are reported.
    """
    found: list[Diagnostic] = []
    clusters: dict[str, FleetCluster] = {}
    bindings: list[tuple[ResourceBinding, Workload]] = []
    templates: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    members: list[FixtureObject] = []
    for each in objects:
        try:
            if is_of_member(each):
                members.append(each)
            elif is_cluster(each):
                clusters[each.name] = cluster(each.convert(KarmadaCluster))
            elif each.kind in BINDINGS:
                binding = each.convert(ResourceBinding)
                bindings.append((binding, workload(binding)))
            else:
                metadata = each.value["metadata"]
                templates[each.kind, metadata.get("namespace", ""), each.name] = metadata
        except BindingError as error:
            found.append(each.error((), f"{each.kind} {each.name}: {error}"))
        except DocumentError as error:
            found.extend(error.diagnostics)
    if found:
        raise DocumentError(found)
    known = with_members(clusters.values(), members_in(members), {}, at=at)
    return state_of(known, bindings, templates)


def state_of(
    clusters: Iterable[FleetCluster],
    bindings: Iterable[tuple[ResourceBinding, Workload]],
    templates: Mapping[tuple[str, str, str], Mapping[str, Any]],
) -> FleetState:
    """Return the fleet of clusters and bindings.

    Args:
        clusters: in any order.
        bindings: each with the workload that was read of it.
        templates: metadata by kind, namespace and name.
    """
    known = {each.name: each for each in clusters}
    fleet = Fleet(tuple(known[name] for name in sorted(known)))

    def is_leaving(name: str) -> bool:
        return name not in known or known[name].deleting

    bound = (
        BoundWorkload(
            _with_template(placed, templates),
            is_decided=is_decided(binding),
            is_due=trigger(binding, is_leaving=is_leaving) is not None,
        )
        for binding, placed in bindings
    )
    placed = tuple(bound)
    running = RunningWorkloads(each.workload for each in placed)
    return FleetState(msgspec.structs.replace(fleet, running=running), placed)


_NO_METADATA: Mapping[str, Any] = MappingProxyType({})


def _with_template(asked: Workload, templates: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> Workload:
    """Return a workload with the labels and annotations of its template, if that is there."""
    metadata = templates.get((asked.kind, asked.namespace, asked.name))
    if metadata is None:
        return asked
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return msgspec.structs.replace(asked, labels=labels, annotations=annotations)
