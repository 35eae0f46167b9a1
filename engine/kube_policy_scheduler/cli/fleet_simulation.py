"""`policyctl simulate --fleet`: reads a fleet and what happens to it, and prints what policies make of that."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.arrivals import ArrivalSources, recorded_metrics
from kube_policy_scheduler.cli.terminal import interruptible, say, say_json, say_lines, status_line, terminal
from kube_policy_scheduler.times import short_duration

if TYPE_CHECKING:
    from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
    from kube_policy_scheduler.tooling.fleet_simulation.run import FleetRun
    from kube_policy_scheduler.tooling.fleet_simulation.scenario import FleetScenario, FleetVariant

KARMADA = "karmada"
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class FleetSources:
    """What the options say of a fleet."""

    fleets: tuple[Path, ...]
    workloads: Path | None
    duration: float | None


def simulate_fleet(
    names: Sequence[str],
    fleet: FleetSources,
    sources: ArrivalSources,
    *,
    against: str | None,
    form: str,
    html: Path | None,
) -> int:
    """Simulate a fleet under several policies; return the exit code.

    Args:
        names: of the policies; the one that others are compared with comes first.
        fleet: what the options say of the fleet.
        sources: what they say of events and metrics.
        against: the policy that others are compared with.
        form: text or json.
        html: where to write the page.

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: nothing is left to simulate.
    """
    from kube_policy_scheduler.tooling.fleet_simulation import results as reporting

    variants, scenario = _made([(name, _policies(name)) for name in names], fleet, sources)
    for note in scenario.notes:
        say(f"policyctl: {note}", err=True)
    with interruptible() as stop:
        runs = _run_all(variants, scenario, stop)
        interrupted = stop()
    is_compared = against is not None and len(runs) == len(variants)
    found = reporting.data(runs, scenario, against=runs[0].name if is_compared else None)
    differences = reporting.differences_table(runs) if is_compared else []
    if form == "json":
        say_json(found)
    else:
        say(reporting.summary(runs, scenario))
        say_lines(reporting.lines(runs, to=terminal()))
        for title, rows in differences:
            say_lines(["", title, *terminal().table(rows, right_from=1)])
    if html is not None:
        from kube_policy_scheduler.pages.fleet_simulation import fleet_simulation_page

        cluster_sources.write_page(
            html,
            fleet_simulation_page(
                found,
                reporting.summary(runs, scenario),
                tables=[
                    ("Replicas", reporting.clusters_table(runs)),
                    ("Measures", reporting.measures_table(runs)),
                    *differences,
                ],
                notes=list(reporting.notes(runs)),
            ),
            plots=True,
        )
    return _INTERRUPTED if interrupted else 0


def _policies(name: str) -> FleetPolicies | None:
    """Return the policies of a file or folder; None for the Placements alone.

    Raises:
        click.ClickException: none of them is about workloads.
    """
    from kube_policy_scheduler.cli.policies import compiled

    if name == KARMADA and not Path(name).exists():
        return None
    found = compiled(cluster_sources.policies_in([Path(name)])).fleet
    if not found.policies:
        raise click.ClickException(f"{name}: there is no policy of workloads: begin one with `for workloads where …`")
    return found


def _made(
    policies: Sequence[tuple[str, FleetPolicies | None]], fleet: FleetSources, sources: ArrivalSources
) -> tuple[list[FleetVariant], FleetScenario]:
    """Return who decides, and what is simulated."""
    from kube_policy_scheduler.cluster.signals import Signals
    from kube_policy_scheduler.tooling.fleet_simulation.scenario import FleetVariant

    queries = tuple(dict.fromkeys(query for _, one in policies for query in (one.queries if one is not None else ())))
    metrics = recorded_metrics(queries, sources) if queries else None
    scenario = _scenario(
        fleet, sources, begins=metrics.first if metrics is not None and not metrics.is_relative else None
    )
    signals = Signals.EMPTY
    if metrics is not None:
        metrics = metrics.beginning(scenario.starts_at)
    elif queries:
        signals = cluster_sources.signals_for(
            queries, metrics=sources.metrics, prometheus_url=None, now=scenario.starts_at
        )
    found: list[FleetVariant] = []
    for name, one in policies:
        only = one.policies[0].name if one is not None and len(one.policies) == 1 else name
        shown = name if only in {each.name for each in found} else only
        played = metrics.only(one.queries) if metrics is not None and one is not None else None
        found.append(FleetVariant(shown, one, signals if one is not None else Signals.EMPTY, played))
    return found, scenario


def _scenario(fleet: FleetSources, sources: ArrivalSources, *, begins: float | None) -> FleetScenario:
    """Return what is simulated. begins: when the metrics do, Unix seconds."""
    from kube_policy_scheduler.cli.fleets import listing_in
    from kube_policy_scheduler.tooling.fleet_simulation.reading import parse_events, parse_workloads
    from kube_policy_scheduler.tooling.fleet_simulation.scenario import FleetEvents
    from kube_policy_scheduler.tooling.fleet_simulation.starting import scenario_of

    listing, taken = listing_in(fleet.fleets)
    starts_at = next((each for each in (sources.now, begins, taken) if each is not None), float(int(time.time())))
    names = [each.metadata.name for each in listing.clusters]
    if not names:
        where = ", ".join(map(str, fleet.fleets))
        raise click.ClickException(f"{where}: there are no Clusters of Karmada (cluster.karmada.io)")
    arrivals = (
        parse_workloads(
            files.source(fleet.workloads),
            starts_at=starts_at,
            clusters=names,
            there=[(each.metadata.namespace, each.metadata.name) for each in listing.bindings],
        )
        if fleet.workloads is not None
        else ()
    )
    scenario = scenario_of(
        listing.clusters, listing.bindings, listing.templates, arrivals, starts_at=starts_at, duration=fleet.duration
    )
    scenario = scenario.with_members(listing.members)
    if not scenario.bindings and not scenario.arrivals:
        raise click.ClickException("the fleet has no workload, and none arrives: specify --workloads FILE")
    if sources.events is None:
        return scenario
    there = [(each.spec.resource.namespace, each.spec.resource.name) for each in scenario.bindings]
    there += [(each.binding.spec.resource.namespace, each.binding.spec.resource.name) for each in scenario.arrivals]
    happens: FleetEvents = parse_events(
        files.source(sources.events), clusters=scenario.clusters, workloads=there, starts_at=starts_at
    )
    return scenario.with_events(happens)


def _run_all(variants: Sequence[FleetVariant], scenario: FleetScenario, stop: Callable[[], bool]) -> list[FleetRun]:
    """Simulate every variant; those that are shorter go on as they are until the longest one ends."""
    from kube_policy_scheduler.tooling.fleet_simulation.run import extended, run_fleet

    runs: list[FleetRun] = []
    with status_line() as show:
        for variant in variants:
            if stop() and runs:
                say(f"policyctl: stopped: {variant.name} was not simulated", err=True)
                break

            def progress(now: float, *, name: str = variant.name) -> None:
                show(f"{name}: {short_duration(now)} of virtual time")

            runs.append(run_fleet(scenario, variant, stop=stop, progress=progress))
    if stop():
        at = short_duration(runs[-1].seconds)
        say(f"policyctl: stopped: the run of {runs[-1].name} is partial: it ends after {at} of virtual time", err=True)
        return runs
    longest = max(run.seconds for run in runs)
    return [extended(run, longest) for run in runs]
