"""A fleet that commands are given as files: clusters and bindings of a Karmada control plane."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
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
    from kube_policy_scheduler.documents.fixtures import read_objects
    from kube_policy_scheduler.tooling.cluster_state import taken_at
    from kube_policy_scheduler.tooling.fleet_state import fleet_state

    things = {path: read_objects(path) for path in paths}
    for path, objects in things.items():
        if not objects:
            raise click.ClickException(f"{path} is empty: expected Clusters, ResourceBindings and their workloads")
    found = [each for objects in things.values() for each in objects]
    if now is None:
        now = taken_at(found)
    return GivenFleet(fleet_state(found), time.time() if now is None else now)
