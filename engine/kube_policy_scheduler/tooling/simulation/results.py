"""The runs of several seeds as one result, with its reports for people and programs."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.framework.backfill.reservation import MOST_ENDS
from kube_policy_scheduler.framework.preempt.reclaim import MOST_DISPLACED
from kube_policy_scheduler.times import short_duration
from kube_policy_scheduler.tooling.simulation.queue_shares import MOST_QUEUES, QueueRun
from kube_policy_scheduler.tooling.simulation.run import Run
from kube_policy_scheduler.tooling.simulation.scenario import Scenario
from kube_policy_scheduler.tooling.text_table import Terminal
from kube_policy_scheduler.wording import plural

_SHOWN_REASONS = 3


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over several seeds."""

    mean: float
    deviation: float
    """The standard deviation over the seeds (of a sample); 0 for a single one."""
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return what several numbers come to; none come to 0."""
        if not values:
            return cls(0.0, 0.0, 0.0, 0.0)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), deviation, float(min(values)), float(max(values)))

    def data(self) -> dict[str, float]:
        """Return it for programs."""
        return {"mean": self.mean, "deviation": self.deviation, "min": self.low, "max": self.high}


def _waits(waits: Sequence[float]) -> tuple[float, float, float] | None:
    return (float(np.mean(waits)), float(np.percentile(waits, 95)), float(max(waits))) if waits else None


@dataclass(frozen=True, slots=True)
class QueueUse:
    """What one queue used of one resource, as shares of what the nodes offer, on average over time."""

    queue: str
    parent: str | None
    resource: str
    guaranteed: Spread
    used: Spread
    borrowed: Spread
    peak: Spread
    """The most that it used."""
    evicted: Spread
    """Pods, of all resources."""
    wait_seconds: tuple[float, float, float] | None
    """Mean, 95th percentile and maximum; None where no pod waits."""


@dataclass(frozen=True, slots=True)
class Result:
    """One variant over all seeds."""

    name: str
    runs: tuple[Run, ...]

    def marks(self) -> dict[float, Spread]:
        """Return what was in use when so much was requested."""
        return {mark: Spread.of([run.marks[mark] for run in self.runs]) for mark in self.runs[0].marks}

    def used(self, resource: str) -> Spread:
        """Return the share of a resource in use over time, on average."""
        return Spread.of([run.mean_used(resource) for run in self.runs])

    def last_used(self, resource: str) -> Spread:
        """Return the share of a resource in use in the end."""
        return Spread.of([run.last.used[resource] for run in self.runs])

    def peak(self, resource: str) -> Spread:
        """Return the highest share of a resource in use."""
        return Spread.of([max(sample.used[resource] for sample in run.samples) for run in self.runs])

    def fragmentation(self) -> Spread | None:
        """Return the share of the free room on devices that is of no use, in the end; None without devices."""
        values = [run.last.fragmentation for run in self.runs]
        known = [value for value in values if value is not None]
        return Spread.of(known) if len(known) == len(values) else None

    def price(self) -> Spread | None:
        """Return what the nodes in use cost per hour, on average; None where no node has a price."""
        known = [price for run in self.runs if (price := run.mean_price()) is not None]
        return Spread.of(known) if len(known) == len(self.runs) else None

    @property
    def nodes_change(self) -> bool:
        """Return whether nodes come and go."""
        return self.runs[0].nodes_change

    def nodes(self) -> Spread:
        """Return how many nodes there are, on average."""
        return Spread.of([run.mean_nodes() for run in self.runs])

    def most_nodes(self) -> Spread:
        """Return how many nodes there are at most."""
        return Spread.of([run.most_nodes() for run in self.runs])

    def cost(self) -> Spread | None:
        """Return what all nodes cost in total, where nodes come and go; None where no node has a price."""
        return Spread.of([run.cost for run in self.runs]) if self.nodes_change and self.price() is not None else None

    def together(self) -> dict[str, Spread]:
        """Return the most devices that are free on one node in the end, by DeviceClass."""
        names = self.runs[0].last.together
        return {name: Spread.of([run.last.together[name] for run in self.runs]) for name in names}

    def waits(self) -> tuple[float, float, float] | None:
        """Return mean, 95th percentile and maximum of the seconds from arrival to binding; None where none waits."""
        return _waits([wait for run in self.runs for wait in run.wait_seconds])

    def queue_uses(self) -> list[QueueUse]:
        """Return what each queue used over time, a row for each of its resources; none where no queue is measured."""
        rows: dict[tuple[str, str], list[tuple[Run, QueueRun, int, int]]] = {}
        for run in self.runs:
            for number, queue in enumerate(run.queues.queues if run.queues is not None else ()):
                assert run.queues is not None
                for place, resource in enumerate(run.queues.resources):
                    rows.setdefault((queue.name, resource), []).append((run, run.queues, number, place))
        return [self._queue_use(name, resource, each) for (name, resource), each in rows.items()]

    def _queue_use(self, name: str, resource: str, rows: Sequence[tuple[Run, QueueRun, int, int]]) -> QueueUse:
        absent = len(self.runs) - len(rows)  # by key: without a pod in some runs
        measured = [of.queues[number] for _, of, number, _ in rows]

        def means(read: Callable[[QueueRun, int, int], FloatArray], missing: int = absent) -> Spread:
            each = [run.mean(read(of, number, place).tolist()) for run, of, number, place in rows]
            return Spread.of(each + [0.0] * missing)

        peaks = [float(of.used(number, place).max(initial=0.0)) for _, of, number, place in rows]
        return QueueUse(
            name,
            measured[0].parent,
            resource,
            guaranteed=means(QueueRun.guaranteed, 0),
            used=means(QueueRun.used),
            borrowed=means(QueueRun.borrowed),
            peak=Spread.of(peaks + [0.0] * absent),
            evicted=Spread.of([float(queue.evicted) for queue in measured] + [0.0] * absent),
            wait_seconds=_waits([wait for queue in measured for wait in queue.wait_seconds]),
        )

    def reasons(self) -> dict[str, float]:
        """Return why pods were not placed, with how many per run."""
        total: Counter[str] = Counter()
        for run in self.runs:
            total.update(run.reasons)
        return {reason: number / len(self.runs) for reason, number in total.most_common()}


def data(results: Sequence[Result], scenario: Scenario) -> dict[str, Any]:
    """Return everything for programs; shares are from 0 to 1."""
    first = results[0].runs[0]
    return {
        "mode": "dropped" if scenario.drops else "queued",
        "until": scenario.until,
        "resources": [{"name": name, "capacity": first.capacity[name]} for name in first.resources],
        "seeds": [run.seed for run in results[0].runs],
        "notes": list(scenario.notes),
        "variants": [_result(result) for result in results],
    }


def _result(result: Result) -> dict[str, Any]:
    runs = result.runs
    fragmentation, waits, price, cost = result.fragmentation(), result.waits(), result.price(), result.cost()
    return {
        "name": result.name,
        "marks": [{"arrived": mark, "allocated": spread.data()} for mark, spread in result.marks().items()],
        "usedMean": {name: result.used(name).data() for name in runs[0].resources},
        "usedPeak": {name: result.peak(name).data() for name in runs[0].resources},
        "usedLast": {name: result.last_used(name).data() for name in runs[0].resources},
        "spreadLast": Spread.of([run.last.spread for run in runs]).data(),
        "fragmentationLast": fragmentation.data() if fragmentation is not None else None,
        "hourlyPriceMean": price.data() if price is not None else None,
        "cost": cost.data() if cost is not None else None,
        "nodesMean": result.nodes().data(),
        "nodesMost": result.most_nodes().data(),
        "freeTogetherLast": {name: spread.data() for name, spread in result.together().items()},
        "pendingMost": Spread.of([max(sample.pending for sample in run.samples) for run in runs]).data(),
        "waitSeconds": dict(zip(("mean", "p95", "max"), waits, strict=True)) if waits is not None else None,
        "reasons": result.reasons(),
        "queues": [_queue_use(use) for use in result.queue_uses()],
        "seconds": Spread.of([run.seconds for run in runs]).data(),
        "decisionsPerSecond": Spread.of([run.decisions / run.seconds if run.seconds else 0.0 for run in runs]).data(),
        "runs": [_run(run) for run in runs],
    }


def _queue_use(use: QueueUse) -> dict[str, Any]:
    waits = use.wait_seconds
    return {
        "name": use.queue,
        "parent": use.parent,
        "resource": use.resource,
        "guaranteedMean": use.guaranteed.data(),
        "usedMean": use.used.data(),
        "borrowedMean": use.borrowed.data(),
        "usedPeak": use.peak.data(),
        "evicted": use.evicted.data(),
        "waitSeconds": dict(zip(("mean", "p95", "max"), waits, strict=True)) if waits is not None else None,
    }


def _queues(run: Run) -> list[dict[str, Any]]:
    """Return for each queue and resource of a run its values, one for each sample."""
    of = run.queues
    return [
        {
            "name": queue.name,
            "resource": resource,
            "guaranteed": of.guaranteed(number, place).round(6).tolist(),
            "used": of.used(number, place).round(6).tolist(),
            "borrowed": of.borrowed(number, place).round(6).tolist(),
            "share": of.shares(number).round(6).tolist(),
        }
        for number, queue in enumerate(of.queues)
        for place, resource in enumerate(of.resources)
    ] if of is not None else []  # fmt: skip


def _run(run: Run) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "arrived": run.arrived,
        "placed": run.placed,
        "left": run.left,
        "evicted": run.evicted,
        "givenBack": run.given_back,
        "restarted": run.restarted,
        "lost": run.lost,
        "givenUpAt": run.given_up_at,
        "cutReclaims": run.cut_reclaims,
        "cutBackfills": run.cut_backfills,
        "unplaced": run.unplaced,
        "decisions": run.decisions,
        "seconds": run.seconds,
        "samples": [
            {
                "at": sample.at,
                "arrived": sample.arrived,
                "used": dict(sample.used),
                "spread": sample.spread,
                "fragmentation": sample.fragmentation,
                "freeTogether": dict(sample.together),
                "pending": sample.pending,
                "running": sample.running,
                "hourlyPrice": sample.hourly or None if run.nodes_change else sample.price,
                "nodes": sample.nodes,
                "upcomingNodes": sample.upcoming,
            }
            for sample in run.samples
        ],
        "queues": _queues(run),
        "queuesNotMeasured": run.queues.left if run.queues is not None else 0,
    }


# --- for people ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under a head; the first column is a name, the others are numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(results: Sequence[Result], scenario: Scenario) -> Table:
    """Return what matters most, a row for each variant."""
    first = results[0].runs[0]
    several = len(results[0].runs) > 1
    columns: dict[str, list[str]] = {}

    def add(title: str, texts: list[str]) -> None:
        columns[title] = texts

    if first.marks:
        for mark in first.marks:
            spreads = [result.marks()[mark] for result in results]
            add(
                f"{short(first.resources[0])} at {100 * mark:g} %",
                [percent(spread, several=several) for spread in spreads],
            )
    else:
        for name in first.resources:
            add(f"{short(name)} %", [percent(result.used(name), several=several) for result in results])
        main = first.resources[0]
        add("peak", [percent(result.peak(main), several=False) for result in results])
    kept = [result.fragmentation() for result in results]
    if any(spread is not None for spread in kept):
        add("fragmented", [percent(spread, several=False) if spread is not None else "–" for spread in kept])
    costs = [result.price() for result in results]
    if any(cost is not None for cost in costs):
        add("price/h", [f"{cost.mean:,.2f}" if cost is not None else "–" for cost in costs])
    if any(result.nodes_change for result in results):
        totals = [result.cost() for result in results]
        if any(total is not None for total in totals):
            add("cost", [f"{total.mean:,.2f}" if total is not None else "–" for total in totals])
        add("nodes", [f"{result.nodes().mean:,.1f}" for result in results])
        add("most", [f"{result.most_nodes().mean:,.0f}" for result in results])
    for name in first.last.together:
        if first.marks:
            add(
                f"{name} devices %",
                [percent(result.last_used(f"{name} devices"), several=several) for result in results],
            )
        add(f"{name} free on a node", [f"{result.together()[name].mean:g}" for result in results])
    runs = [result.runs for result in results]
    add("placed", [_number([run.placed for run in each]) for each in runs])
    add("dropped" if scenario.drops else "pending", [_number([run.unplaced for run in each]) for each in runs])
    if not scenario.drops:
        waits = [result.waits() for result in results]
        add("wait", [short_duration(wait[0]) if wait is not None else "–" for wait in waits])
        add("p95", [short_duration(wait[1]) if wait is not None else "–" for wait in waits])
    if any(run.evicted for each in runs for run in each):
        add("evicted", [_number([run.evicted for run in each]) for each in runs])
    if any(run.given_back for each in runs for run in each):
        add("given back", [_number([run.given_back for run in each]) for each in runs])
    if any(run.restarted for each in runs for run in each):
        add("restarted", [_number([run.restarted for run in each]) for each in runs])
    if any(run.lost for each in runs for run in each):
        add("lost", [_number([run.lost for run in each]) for each in runs])
    rows = zip((result.name for result in results), *columns.values(), strict=True)
    return Table(("policy", *columns), tuple(rows))


def short(resource: str) -> str:
    """Return a resource as a column's head names it."""
    return {"memory": "mem"}.get(resource, resource.rpartition("/")[2])


def percent(spread: Spread, *, several: bool) -> str:
    """Return a share as per cent, over several seeds with its deviation."""
    text = f"{100 * spread.mean:.2f}"
    return f"{text} ±{100 * spread.deviation:.2f}" if several else text


def _number(values: Sequence[float]) -> str:
    return f"{round(sum(values) / len(values)):,}" if values else "–"


def lines(results: Sequence[Result], scenario: Scenario, *, to: Terminal) -> Iterator[str]:
    """Return the table for people."""
    made = table(results, scenario)
    yield from to.table([made.head, *made.rows], right_from=1)
    queues = queue_table(results)
    if queues is not None:
        yield ""
        yield from to.table([queues.head, *queues.rows], right_from=3)
        yield from queue_notes(results)
    yield from endless_notes(results)
    yield from cut_notes(results)


def endless_notes(results: Sequence[Result]) -> Iterator[str]:
    """Yield what was given up because pods would have evicted each other for ever, as sentences."""
    for result in results:
        for run in result.runs:
            if run.given_up_at is not None:
                yield (
                    f"{result.name}: given up after {short_duration(run.given_up_at)} with seed {run.seed}:"
                    f" {run.evicted:,} pods were evicted, without end; the rows show what was until then"
                )


def cut_notes(results: Sequence[Result]) -> Iterator[str]:
    """Yield which searches ended at their bound, so that pods may have waited though room could be made, as sentences.

    With several seeds, of all of them together.
    """
    for result in results:
        if times := sum(run.cut_reclaims for run in result.runs):
            yield (
                f"{result.name}: {_times(times)}, {MOST_DISPLACED:,} evictions made too little room for a pod or gang;"
                " reclaim does not try more of them at a time"
            )
        if times := sum(run.cut_backfills for run in result.runs):
            yield (
                f"{result.name}: {_times(times)}, the ends of the next {MOST_ENDS:,} pods made too little room for the"
                " first pod of an order; backfill does not look further, and reserved nothing for it"
            )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def queue_table(results: Sequence[Result]) -> Table | None:
    """Return what each queue used, a row for each queue, variant and resource; None where there are no queues."""
    several = len(results[0].runs) > 1
    uses: dict[str, list[tuple[str, QueueUse]]] = {}
    for result in results:
        for use in result.queue_uses():
            uses.setdefault(use.queue, []).append((result.name, use))
    if not uses:
        return None
    parents = {use.queue: use.parent for rows in uses.values() for _, use in rows}
    waiting = any(use.wait_seconds is not None for rows in uses.values() for _, use in rows)
    found: list[tuple[str, ...]] = []
    for name in _children_after_parents(parents):
        shown = "  " * _depth(name, parents) + name
        first = True
        for policy, use in uses[name]:
            if not (use.guaranteed.high or use.peak.high):
                continue  # a resource that only other queues name
            waits = use.wait_seconds
            found.append(
                (
                    shown if first else "",
                    policy,
                    short(use.resource),
                    *(percent(spread, several=several) for spread in (use.guaranteed, use.used, use.borrowed)),
                    percent(use.peak, several=False),
                    *((short_duration(waits[0]) if waits is not None else "–",) if waiting else ()),
                    f"{use.evicted.mean:,.0f}",
                )
            )
            first = False
    head = ("queue", "policy", "resource", "guaranteed %", "used %", "borrowed %", "peak")
    return Table((*head, *(("wait",) if waiting else ()), "evicted"), tuple(found))


def _children_after_parents(parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield queues with each followed by those below it."""
    below: dict[str | None, list[str]] = {}
    for name, parent in parents.items():
        below.setdefault(parent if parent in parents else None, []).append(name)
    stack = below.get(None, [])[::-1]
    while stack:
        name = stack.pop()
        yield name
        stack += below.get(name, [])[::-1]


def _depth(name: str, parents: Mapping[str, str | None]) -> int:
    depth, above = 0, parents[name]
    while above is not None and above in parents:
        depth, above = depth + 1, parents[above]
    return depth


def queue_notes(results: Sequence[Result]) -> list[str]:
    """Return what is missing from the table of queues, and what cannot be guaranteed, as sentences."""
    unmet = {
        f"{result.name}: {each.resource}: {each.text}": None
        for result in results
        for run in result.runs
        for each in (run.queues.unmet() if run.queues is not None else ())
    }
    left = {result.name: max(run.queues.left if run.queues else 0 for run in result.runs) for result in results}
    return [*unmet] + [
        f"{name}: {plural(number, 'queue')} not measured, only the first {MOST_QUEUES}"
        for name, number in left.items()
        if number
    ]


CSV_HEAD = ("policy", "seed", "seconds", "queue", "resource", "guaranteed", "used", "borrowed", "share")


def shares_csv(results: Sequence[Result]) -> str:
    """Return what queues used over time as CSV: a row for each moment, queue and resource; shares are from 0 to 1."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    write.writerow(CSV_HEAD)
    for result in results:
        for run in result.runs:
            for each in _queues(run):
                columns = (each[name] for name in ("guaranteed", "used", "borrowed", "share"))
                for sample, *values in zip(run.samples, *columns, strict=True):
                    write.writerow(
                        (result.name, run.seed, f"{sample.at:g}", each["name"], each["resource"], *map(_text, values))
                    )
    return out.getvalue()


def _text(value: float) -> str:
    return f"{value:.6g}"


def speed(results: Sequence[Result]) -> str:
    """Return how long it took."""
    runs = [run for result in results for run in result.runs]
    decisions, seconds = sum(run.decisions for run in runs), sum(run.seconds for run in runs)
    rate = f" ({decisions / seconds:,.0f} a second)" if seconds else ""
    return f"{plural(len(runs), 'run')}, {decisions:,} decisions in {seconds:.1f} s{rate}"


def rejections(results: Sequence[Result]) -> list[str]:
    """Return for each variant what most of its pods without a place were rejected by."""
    found = []
    for result in results:
        reasons = list(result.reasons().items())
        if reasons:
            texts = [f"{number:,.0f} by {reason}" for reason, number in reasons[:_SHOWN_REASONS]]
            more = f", … ({len(reasons) - _SHOWN_REASONS} more)" if len(reasons) > _SHOWN_REASONS else ""
            found.append(f"{result.name}, rejected: {'; '.join(texts)}{more}")
    return found


def summary(results: Sequence[Result], scenario: Scenario) -> str:
    """Return in one line what was simulated."""
    run = results[0].runs[0]
    seeds = f", {len(results[0].runs)} seeds" if len(results[0].runs) > 1 else ""
    what = plural(run.arrived, "pod")
    if scenario.until is not None:
        asked = f"{100 * scenario.until:g} % of {short(run.resources[0])}"
        what += f", until {asked} are requested; pods that do not fit are dropped"
    capacity = f"{run.capacity[run.resources[0]]:,.0f} {short(run.resources[0])}"
    return f"{what}; {capacity}{seeds}" if run.resources[0] not in ("cpu", "memory") else f"{what}{seeds}"
