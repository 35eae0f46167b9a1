"""The runs of several seeds as one result, with its reports for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kube_policy_scheduler.times import short_duration
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


@dataclass(frozen=True, slots=True)
class Result:
    """One variant over all seeds."""

    name: str
    runs: tuple[Run, ...]

    def marks(self) -> dict[float, Spread]:
        """Return what was in use when so much had been asked for."""
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

    def together(self) -> dict[str, Spread]:
        """Return the most devices that are free on one node in the end, by DeviceClass."""
        names = self.runs[0].last.together
        return {name: Spread.of([run.last.together[name] for run in self.runs]) for name in names}

    def waits(self) -> tuple[float, float, float] | None:
        """Return mean, 95th percentile and maximum of the seconds from arrival to binding; None where none waits."""
        waits = [wait for run in self.runs for wait in run.wait_seconds]
        if not waits:
            return None
        return float(np.mean(waits)), float(np.percentile(waits, 95)), float(max(waits))

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
    fragmentation, waits, price = result.fragmentation(), result.waits(), result.price()
    return {
        "name": result.name,
        "marks": [{"arrived": mark, "allocated": spread.data()} for mark, spread in result.marks().items()],
        "usedMean": {name: result.used(name).data() for name in runs[0].resources},
        "usedPeak": {name: result.peak(name).data() for name in runs[0].resources},
        "usedLast": {name: result.last_used(name).data() for name in runs[0].resources},
        "spreadLast": Spread.of([run.last.spread for run in runs]).data(),
        "fragmentationLast": fragmentation.data() if fragmentation is not None else None,
        "hourlyPriceMean": price.data() if price is not None else None,
        "freeTogetherLast": {name: spread.data() for name, spread in result.together().items()},
        "pendingMost": Spread.of([max(sample.pending for sample in run.samples) for run in runs]).data(),
        "waitSeconds": dict(zip(("mean", "p95", "max"), waits, strict=True)) if waits is not None else None,
        "reasons": result.reasons(),
        "seconds": Spread.of([run.seconds for run in runs]).data(),
        "decisionsPerSecond": Spread.of([run.decisions / run.seconds if run.seconds else 0.0 for run in runs]).data(),
        "runs": [_run(run) for run in runs],
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "arrived": run.arrived,
        "placed": run.placed,
        "left": run.left,
        "evicted": run.evicted,
        "givenBack": run.given_back,
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
                "hourlyPrice": sample.price,
            }
            for sample in run.samples
        ],
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


def speed(results: Sequence[Result]) -> str:
    """Return how long it took."""
    runs = [run for result in results for run in result.runs]
    decisions, seconds = sum(run.decisions for run in runs), sum(run.seconds for run in runs)
    rate = f" ({decisions / seconds:,.0f} a second)" if seconds else ""
    return f"{plural(len(runs), 'run')}, {decisions:,} decisions in {seconds:.1f} s{rate}"


def refusals(results: Sequence[Result]) -> list[str]:
    """Return for each variant what most of its pods without a place were refused by."""
    found = []
    for result in results:
        reasons = list(result.reasons().items())
        if reasons:
            texts = [f"{number:,.0f} by {reason}" for reason, number in reasons[:_SHOWN_REASONS]]
            more = f", … ({len(reasons) - _SHOWN_REASONS} more)" if len(reasons) > _SHOWN_REASONS else ""
            found.append(f"{result.name}, refused: {'; '.join(texts)}{more}")
    return found


def summary(results: Sequence[Result], scenario: Scenario) -> str:
    """Return in one line what was simulated."""
    run = results[0].runs[0]
    seeds = f", {len(results[0].runs)} seeds" if len(results[0].runs) > 1 else ""
    what = f"{run.arrived:,} pods"
    if scenario.until is not None:
        asked = f"{100 * scenario.until:g} % of {short(run.resources[0])}"
        what += f", until {asked} are asked for; pods that do not fit are dropped"
    capacity = f"{run.capacity[run.resources[0]]:,.0f} {short(run.resources[0])}"
    return f"{what}; {capacity}{seeds}" if run.resources[0] not in ("cpu", "memory") else f"{what}{seeds}"
