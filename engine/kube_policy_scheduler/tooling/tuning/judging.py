"""What is measured of a run, and whether other numbers are better: paired differences, and what refuses them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kube_policy_scheduler.tooling.simulation.run import Run
from kube_policy_scheduler.tooling.simulation.scenario import Scenario
from kube_policy_scheduler.tooling.tuning.parameters import Parameter
from kube_policy_scheduler.tooling.tuning.samples import Purpose

STANDARD_ERRORS = 2.0
"""A gain counts if it is larger than so many standard errors of the mean difference."""
MOST_WORSE = 0.02
"""No measure may become worse than this share of what it is today."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a run; less is better."""

    name: str
    meaning: str
    unit: str
    """`%` for a share, `s`, or "" for a count or a price."""
    read: Callable[[Run, Scenario], float | None]

    def text(self, value: float, *, sign: bool = False) -> str:
        """Return a value as people read it."""
        shown = 100 * value if self.unit == "%" else value
        digits = 3 if self.unit == "%" else 2
        return f"{shown:{'+' if sign else ''},.{digits}f}{' ' if self.unit else ''}{self.unit}"


def _unplaced(run: Run, scenario: Scenario) -> float:
    return run.unplaced / run.arrived if run.arrived else 0.0


def _wait(run: Run, scenario: Scenario) -> float | None:
    return float(np.mean(run.wait_seconds)) if run.wait_seconds and not scenario.drops else None


def _unused(run: Run, scenario: Scenario) -> float:
    main = run.resources[0]
    return 1.0 - (run.last.used[main] if scenario.drops else run.mean_used(main))


def _fragmentation(run: Run, scenario: Scenario) -> float | None:
    return run.last.fragmentation


def _nodes_used(run: Run, scenario: Scenario) -> float:
    return run.mean_nodes_in_use()


def _moves(run: Run, scenario: Scenario) -> float | None:
    return (run.evicted + run.given_back) / run.arrived if run.arrived and not scenario.drops else None


def _price(run: Run, scenario: Scenario) -> float | None:
    return run.mean_price()


MEASURES: Mapping[str, Measure] = {
    each.name: each
    for each in (
        Measure("unplaced", "pods without a node in the end", "%", _unplaced),
        Measure("wait", "mean time from arrival to binding", "s", _wait),
        Measure("unused", "capacity of the main resource that is not in use", "%", _unused),
        Measure("fragmentation", "free capacity of devices that no pod of the workload can use", "%", _fragmentation),
        Measure("nodes", "nodes with pods; fewer means more empty nodes", "%", _nodes_used),
        Measure("moves", "pods that were evicted, or gave their node back", "%", _moves),
        Measure("price", "price per hour of the nodes in use", "", _price),
    )
}
"""The objectives that a search can have, by name."""


def measured(run: Run, scenario: Scenario) -> dict[str, float]:
    """Return all measures that a run has."""
    found = {name: measure.read(run, scenario) for name, measure in MEASURES.items()}
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure, today and with other numbers, on the same samples."""

    measure: Measure
    purpose: Purpose
    today: tuple[float, ...]
    tuned: tuple[float, ...]

    @property
    def change(self) -> float:
        """Return the mean difference; negative is better."""
        return float(np.mean(np.subtract(self.tuned, self.today)))

    @property
    def standard_error(self) -> float:
        """Return the standard error of the mean difference."""
        count = len(self.today)
        return float(np.std(np.subtract(self.tuned, self.today), ddof=1) / math.sqrt(count)) if count > 1 else math.inf

    @property
    def is_better(self) -> bool:
        """Return whether it is better by more than noise."""
        return self.change < 0 and -self.change > STANDARD_ERRORS * self.standard_error

    @property
    def is_worse(self) -> bool:
        """Return whether it became worse by more than is allowed, and not by noise alone."""
        today = abs(float(np.mean(self.today)))
        return self.change > MOST_WORSE * today and self.change > self.standard_error

    def data(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "measure": self.measure.name,
            "meaning": self.measure.meaning,
            "unit": self.measure.unit,
            "on": self.purpose.value,
            "today": list(self.today),
            "tuned": list(self.tuned),
            "change": self.change,
            "standardError": self.standard_error if math.isfinite(self.standard_error) else None,
            "better": self.is_better,
            "worse": self.is_worse,
        }


def compared(
    today: Sequence[Mapping[str, float]], tuned: Sequence[Mapping[str, float]], purpose: Purpose
) -> list[Comparison]:
    """Return the measures that all runs have; both sequences are of the same samples, in the same order."""
    found = []
    for name, measure in MEASURES.items():
        if all(name in each for each in (*today, *tuned)):
            pairs = (tuple(each[name] for each in side) for side in (today, tuned))
            found.append(Comparison(measure, purpose, *pairs))
    return found


@dataclass(frozen=True, slots=True)
class Trial:
    """Numbers that were tried, with the measure to be improved on each sample of the search."""

    values: Mapping[str, float]
    costs: tuple[float, ...]

    @property
    def cost(self) -> float:
        """Return the mean."""
        return float(np.mean(self.costs))


def is_as_good(trial: Trial, best: Trial) -> bool:
    """Return whether a trial is worse by no more than one standard error of the paired differences."""
    differences = np.subtract(trial.costs, best.costs)
    if len(differences) < 2:
        return bool(differences.mean() <= 0)
    return float(differences.mean()) <= float(differences.std(ddof=1)) / math.sqrt(len(differences))


def chosen(trials: Sequence[Trial], parameters: Sequence[Parameter]) -> Trial:
    """Return the trial nearest to today's numbers of those that are as good as the best one."""
    best = min(trials, key=lambda trial: trial.cost)

    def distance(trial: Trial) -> float:
        return sum((each.place(trial.values[each.name]) - each.place(each.today)) ** 2 for each in parameters)

    as_good = (trial for trial in trials if is_as_good(trial, best))
    return min(as_good, key=lambda trial: (distance(trial), trial.cost))


def refusals(
    objective: str, found: Sequence[Comparison], parameters: Sequence[Parameter], values: Mapping[str, float]
) -> list[str]:
    """Return why the numbers are not to be used; nothing if they are."""
    if all(values[each.name] == each.today for each in parameters):
        return ["no numbers were better than today's in the search"]
    why = []
    for each in parameters:
        end = each.bound(values[each.name])
        if end is not None:
            why.append(
                f"`{each.name}` = {each.text(values[each.name])} is at the end of its range: the best may be beyond;"
                " widen the range or keep the number"
            )
    for one in found:
        name, change = one.measure.name, one.measure.text(one.change, sign=True)
        if name == objective and one.purpose is Purpose.JUDGE and not one.is_better:
            error = f" ± {one.measure.text(one.standard_error)}" if math.isfinite(one.standard_error) else ""
            why.append(f"`{name}` changes by {change}{error} on the judging part: that is no gain, or within noise")
        elif one.is_worse:
            where = "judging" if one.purpose is Purpose.JUDGE else "confirming"
            why.append(f"`{name}` becomes worse by {change} on the {where} part")
    return why


def compared_runs(before: Sequence[Run], after: Sequence[Run], scenario: Scenario) -> list[Comparison]:
    """Return the measures of two policies whose runs have the same seeds, in the same order."""
    today, then = ([measured(run, scenario) for run in runs] for runs in (before, after))
    return compared(today, then, Purpose.JUDGE)
