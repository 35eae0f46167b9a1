"""A fleet that commands are given: clusters and bindings of a Karmada control plane, as files or live."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli.terminal import status_line

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.kube.fleet_lists import FleetListing
    from kube_policy_scheduler.documents.fixtures import FixtureObject
    from kube_policy_scheduler.tooling.fleet_state import FleetState


@dataclass(frozen=True, slots=True)
class GivenFleet:
    """The fleet to decide in."""

    state: FleetState
    now: float
    """When decisions are made, Unix seconds."""


def fleet_in(paths: Sequence[Path], *, now: float | None) -> GivenFleet:
    """Return the fleet of files.

    now: when decisions are made; None: when the newest snapshot was taken, else the clock.

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: a file is empty.
    """
    from kube_policy_scheduler.tooling.cluster_state import taken_at
    from kube_policy_scheduler.tooling.fleet_state import fleet_state

    found = objects_in(paths)
    if now is None:
        now = taken_at(found)
    taken = taken_at(found)
    return GivenFleet(fleet_state(found, at=taken), time.time() if now is None else now)


def objects_in(paths: Sequence[Path]) -> list[FixtureObject]:
    """Return the objects of files.

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: a file is empty.
    """
    from kube_policy_scheduler.documents.fixtures import read_objects

    found: list[FixtureObject] = []
    for path in paths:
        objects = read_objects(path)
        if not objects:
            raise click.ClickException(f"{path} is empty: expected Clusters, ResourceBindings and their workloads")
        found += objects
    return found


def listing_in(paths: Sequence[Path]) -> tuple[FleetListing, float | None]:
    """Return the objects of files as if they had been listed, and when the newest snapshot was taken, Unix seconds.

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: a file is empty.
    """
    import msgspec

    from kube_policy_scheduler.adapters.kube.fleet_lists import FleetListing, template_key
    from kube_policy_scheduler.cluster.objects import ObjectMeta
    from kube_policy_scheduler.fleet.karmada.objects import ClusterResourceBinding, KarmadaCluster, ResourceBinding
    from kube_policy_scheduler.tooling.cluster_state import taken_at
    from kube_policy_scheduler.tooling.fleet_members import is_of_member, members_in
    from kube_policy_scheduler.tooling.fleet_state import is_cluster

    clusters, bindings, templates = list[KarmadaCluster](), list[ResourceBinding](), dict[tuple[str, ...], ObjectMeta]()
    found = objects_in(paths)
    for each in found:
        if is_cluster(each):
            clusters.append(each.convert(KarmadaCluster))
        elif each.kind == "ResourceBinding":
            bindings.append(each.convert(ResourceBinding))
        elif each.kind == "ClusterResourceBinding":
            bindings.append(each.convert(ClusterResourceBinding))
        elif not is_of_member(each):
            meta = msgspec.convert(each.value["metadata"], ObjectMeta)
            templates[str(each.value["apiVersion"]), each.kind, meta.namespace, meta.name] = meta
    named = {template_key(each.spec.resource) for each in bindings}
    kept = {key: templates[key] for key in sorted(named) if key in templates}
    return FleetListing(clusters, bindings, kept, members=members_in(found)), taken_at(found)


def live_listing(*, kubeconfig: Path | None, context: str | None, reads_members: bool = False) -> FleetListing:
    """Return what a live control plane holds. reads_members: whether its member clusters are read, too.

    Raises:
        click.ClickException: it cannot be read.
    """
    import asyncio

    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.fleet_lists import survey_fleet

    try:
        with status_line() as show:
            return asyncio.run(
                survey_fleet(
                    kubeconfig=str(kubeconfig) if kubeconfig else None,
                    context=context,
                    reads_members=reads_members,
                    progress=lambda resource, count: show(f"{resource}: {count}"),
                )
            )
    except KubeError as error:
        raise click.ClickException(f"cannot read the fleet: {error}") from error


def live_fleet(
    *, kubeconfig: Path | None, context: str | None, reads_members: bool = False
) -> tuple[GivenFleet, tuple[str, ...]]:
    """Return the fleet of a live control plane, and what of it could not be read.

    reads_members: whether its member clusters are read, too; clusters say themselves why they could not be.

    Raises:
        click.ClickException: it cannot be read.
    """
    from kube_policy_scheduler.fleet.karmada.reading import BindingError, cluster, workload
    from kube_policy_scheduler.tooling.fleet_members import nodes_and_pods, with_members
    from kube_policy_scheduler.tooling.fleet_state import state_of

    listing = live_listing(kubeconfig=kubeconfig, context=context, reads_members=reads_members)
    unread = [f"{one.resource}: {one.reason}" for one in listing.unlisted]
    unread += listing.malformed
    read = []
    for each in listing.bindings:
        try:
            read.append((each, workload(each)))
        except BindingError as error:
            unread.append(f"{each.metadata.namespace}/{each.metadata.name}: {error}")
    templates = {
        (kind, meta.namespace, meta.name): {"labels": meta.labels, "annotations": meta.annotations}
        for (_, kind, _, _), meta in listing.templates.items()
    }
    now = time.time()
    members = {name: nodes_and_pods(things) for name, things in listing.members.items()}
    clusters = with_members(map(cluster, listing.clusters), members, listing.unread_members, at=now)
    return GivenFleet(state_of(clusters, read, templates), now), tuple(unread)
