"""Small fleets to simulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster
from kube_policy_scheduler.tooling.fleet_objects import cluster_object
from kube_policy_scheduler.tooling.fleet_simulation.reading import parse_events, parse_workloads
from kube_policy_scheduler.tooling.fleet_simulation.run import FleetRun, Happening, run_fleet
from kube_policy_scheduler.tooling.fleet_simulation.scenario import FleetScenario, FleetVariant
from kube_policy_scheduler.tooling.fleet_simulation.starting import scenario_of
from tests.fleet.fleets import NOW, policies

APPS = (("apps/v1", "Deployment"),)
OWN_FIRST = 'score 1000 if cluster.provider == "own"\nscore -(cluster.price ?? 9)\ndivide best first'
BACK = f"{OWN_FIRST}\nrebalance at most 2 rest 10min if cluster.condition_age.Ready ?? 0s > 10min"
THREE = (
    {"name": "berlin", "region": "eu", "provider": "own", "price": 3, "cpu": 6},
    {"name": "frankfurt", "region": "eu", "provider": "aws", "price": 5, "cpu": 6},
    {"name": "iowa", "region": "us", "provider": "gcp", "price": 4, "cpu": 12},
)


def fleet(
    clusters: Sequence[Mapping[str, Any]] = THREE,
    workloads: str = "",
    events: str = "",
    *,
    duration: float | None = None,
) -> FleetScenario:
    """Return a fleet of short forms; workloads and events as the files have them, in JSON or YAML."""
    made = [
        msgspec.convert(cluster_object(dict(each), now=NOW - 86_400, apis=APPS), KarmadaCluster) for each in clusters
    ]
    names = [each.metadata.name for each in made]
    arrivals = parse_workloads(Source("workloads.yaml", workloads), starts_at=NOW, clusters=names)
    scenario = scenario_of(made, (), {}, arrivals, starts_at=NOW, duration=duration)
    if not events:
        return scenario
    known = [(each.binding.spec.resource.namespace, each.binding.spec.resource.name) for each in arrivals]
    return scenario.with_events(
        parse_events(Source("events.yaml", events), clusters=scenario.clusters, workloads=known, starts_at=NOW)
    )


def simulated(scenario: FleetScenario, text: str | None) -> FleetRun:
    """Return what becomes of it; without a policy, the Placements decide."""
    return run_fleet(scenario, FleetVariant("policy", policies(text) if text is not None else None))


def told(run: FleetRun, *kinds: str) -> list[tuple[float, str]]:
    """Return when happenings of some kinds happen, and what they say."""
    return [(each.at, _text(each)) for each in run.happenings if each.kind in kinds]


def _text(each: Happening) -> str:
    return f"{each.what}: {each.text}" if each.text else each.what
