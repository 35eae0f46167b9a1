"""What simulations of a fleet say: a timeline, what it comes to, and how policies differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.times import short_duration
from kube_policy_scheduler.tooling.fleet_simulation.run import FleetRun, Happening, happenings_by_moment
from kube_policy_scheduler.tooling.fleet_simulation.scenario import FleetScenario
from kube_policy_scheduler.tooling.text_table import DIM, GREEN, RED, YELLOW, Terminal
from kube_policy_scheduler.wording import amount, plural, some

MOST_LINES = 40
"""Moments of a timeline that are shown; reports for programs and pages have all."""
_STYLES = {"lost": RED, "waits": YELLOW, "evicted": YELLOW, "recovered": GREEN, "moved": GREEN}
_HOUR = 3600.0
_APART = 3
"""So many things of a kind that happen at one time have a line each; more have one together."""


class FleetMeasure(msgspec.Struct, frozen=True):
    """A number by which runs are compared; less is better."""

    name: str
    value: Callable[[FleetRun], float | None]
    text: Callable[[float], str]


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:,.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


MEASURES = (
    FleetMeasure("downtime", lambda run: run.down_seconds, lambda value: short_duration(value) if value else "0s"),
    FleetMeasure("replica hours missing", lambda run: run.missing_seconds, _hours),
    FleetMeasure("replica hours without a cluster", lambda run: run.unplaced_seconds, _hours),
    FleetMeasure("replicas without a cluster at the end", lambda run: run.unplaced, _whole),
    FleetMeasure("replicas evicted", lambda run: run.evicted, _whole),
    FleetMeasure("replicas moved", lambda run: run.moved, _whole),
    FleetMeasure("most moved in a minute", lambda run: run.most_moved, _whole),
    FleetMeasure("mean price per hour", lambda run: run.price, amount),
    FleetMeasure("price per hour at the end", lambda run: run.last_price, amount),
)


def summary(runs: Sequence[FleetRun], scenario: FleetScenario) -> str:
    """Return what was simulated, in one line."""
    first, events = runs[0], scenario.happens.events
    said = [plural(len(first.clusters), "cluster"), plural(first.workloads, "workload")]
    said += [plural(len(events), "event")] if events else []
    return f"{', '.join(said)}; {short_duration(first.seconds)} of virtual time"


def lines(runs: Sequence[FleetRun], *, to: Terminal) -> Iterator[str]:
    """Yield the report for people: what happened under each policy, and what it comes to."""
    for run in runs:
        yield from timeline(run, to=to, title=len(runs) > 1)
        yield ""
    yield from to.table(clusters_table(runs), right_from=1)
    yield ""
    yield from to.table(measures_table(runs), right_from=1)
    yield from notes(runs)


def timeline(run: FleetRun, *, to: Terminal, title: bool, most: int = MOST_LINES) -> Iterator[str]:
    """Yield what happened, a line for each moment and kind."""
    if title:
        yield to.paint(DIM, f"{run.name}:")
    groups = list(happenings_by_moment(run))
    if not groups:
        yield "nothing changes"
        return
    rows = [("time", "", "what happens")]
    styles = {}
    for at, kind, group in groups[:most]:
        for part in [group] if len(group) > _APART else [[each] for each in group]:
            styles[len(rows)] = _STYLES.get(kind, "")
            rows.append((short_duration(at) if at else "0s", kind, printable(_told(part))))
    yield from to.table(rows, right_from=3, styles=styles)
    left = len(groups) - most
    if left > 0:
        yield to.paint(DIM, f"and {plural(left, 'more line')}: --format json or --html shows them")


def _told(group: Sequence[Happening]) -> str:
    """Return what happens at one time to several, or to one."""
    if len(group) == 1:
        (one,) = group
        return f"{one.what}: {one.text}" if one.text and one.text != one.what else one.what
    names = some(list(dict.fromkeys(each.what for each in group)))
    replicas = sum(each.replicas for each in group)
    texts = {each.text for each in group}
    if len(texts) == 1 and group[0].text:
        return f"{names}: {group[0].text} each"
    return f"{names}: {plural(replicas, 'replica')}" if replicas else names


def clusters_table(runs: Sequence[FleetRun]) -> list[tuple[str, ...]]:
    """Return where replicas are placed: at the beginning, and in the end under each policy."""
    several = len(runs) > 1
    heads = [f"{run.name}, {when}" if several else when for run in runs for when in ("at first", "at the end")]
    rows: list[tuple[str, ...]] = [("replicas in", *heads)]
    for name in runs[0].clusters:
        numbers = [each.get(name, 0) for run in runs for each in (run.before, run.after)]
        rows.append((name, *map(_whole, numbers)))
    return rows


def measures_table(runs: Sequence[FleetRun]) -> list[tuple[str, ...]]:
    """Return the measures, with a column for each policy."""
    rows: list[tuple[str, ...]] = [("", *(run.name for run in runs))]
    for each in MEASURES:
        values = [each.value(run) for run in runs]
        if any(value is not None for value in values):
            rows.append((each.name, *(each.text(value) if value is not None else "–" for value in values)))
    return rows


def differences_table(runs: Sequence[FleetRun]) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return for each policy but the first how its measures differ from those of the first, with a title."""
    first = runs[0]
    found = []
    for run in runs[1:]:
        rows: list[tuple[str, ...]] = [("measure, less is better", "against", "policy", "")]
        for each in MEASURES:
            before, after = each.value(first), each.value(run)
            if before is None or after is None:
                continue
            mark = "" if each.text(before) == each.text(after) else "better" if after < before else "worse"
            rows.append((each.name, each.text(before), each.text(after), mark))
        found.append((f"{run.name} against {first.name}", rows))
    return found


def notes(runs: Sequence[FleetRun]) -> Iterator[str]:
    """Yield what people should know about the numbers."""
    for run in runs:
        seconds, name = run.longest_down
        if run.down_seconds:
            several = f"{plural(run.down_workloads, 'workload')} had no replica that ran; longest"
            yield f"{run.name}: {several} {printable(name)}, {short_duration(seconds)}"
        if run.restless:
            yield f"{run.name}: given up after {short_duration(run.seconds)}: `rebalance` never stops moving replicas"
    if any(run.price is not None for run in runs):
        yield "the price is that of the requested cores, by `cluster.price`; clusters without a price are not counted"


def data(runs: Sequence[FleetRun], scenario: FleetScenario, *, against: str | None) -> dict[str, Any]:
    """Return everything for programs. Times are seconds from the beginning."""
    return {
        "notes": list(scenario.notes),
        "against": against,
        "variants": [_run(run) for run in runs],
        "differences": [
            {"policy": run.name, **one}
            for run in (runs[1:] if against is not None else ())
            for one in _differs(runs[0], run)
        ],
    }


def _differs(first: FleetRun, run: FleetRun) -> Iterator[dict[str, Any]]:
    for each in MEASURES:
        before, after = each.value(first), each.value(run)
        if before is not None and after is not None:
            yield {"measure": each.name, "against": before, "policy": after, "change": after - before}


def _run(run: FleetRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "seconds": run.seconds,
        "clusters": list(run.clusters),
        "replicasAtFirst": dict(sorted(run.before.items())),
        "replicasAtTheEnd": dict(sorted(run.after.items())),
        "workloads": run.workloads,
        "moved": run.moved,
        "mostMovedInAMinute": run.most_moved,
        "evicted": run.evicted,
        "missingReplicaSeconds": run.missing_seconds,
        "unplacedReplicaSeconds": run.unplaced_seconds,
        "unplaced": run.unplaced,
        "unplacedMost": run.most_unplaced,
        "downSeconds": run.down_seconds,
        "downWorkloads": run.down_workloads,
        "longestDown": {"seconds": run.longest_down[0], "workload": run.longest_down[1]} if run.down_seconds else None,
        "hourlyPriceMean": run.price,
        "hourlyPriceLast": run.last_price,
        "decisions": run.decisions,
        "restless": run.restless,
        "interrupted": run.interrupted,
        "happenings": [
            {"at": each.at, "kind": each.kind, "what": each.what, "text": each.text, "replicas": each.replicas}
            for each in run.happenings
        ],
        "happeningsLeftOut": run.left_out,
        "samples": [
            {
                "at": each.at,
                "wanted": each.wanted,
                "placed": each.placed,
                "running": dict(sorted(each.running.items())),
                "hourlyPrice": each.price if run.price is not None else None,
            }
            for each in run.samples
        ],
    }
