"""One evaluation: a sample simulated under policies with some numbers; and the report of a whole search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.simulation.metrics_over_time import MetricsOverTime
from kube_policy_scheduler.tooling.simulation.run import Stopwatch, run
from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant
from kube_policy_scheduler.tooling.tuning.judging import MEASURES, Comparison, Trial, measured
from kube_policy_scheduler.tooling.tuning.parameters import Parameter
from kube_policy_scheduler.tooling.tuning.samples import Purpose, Sample


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a worker is given."""

    sources: tuple[Source, ...]
    """The policies, with their numbers."""
    library: tuple[Source, ...]
    """Files that they may use."""
    sample: Sample
    signals: Signals
    metrics: MetricsOverTime | None


def evaluate(what: Evaluation, *, stopwatch: Stopwatch) -> dict[str, float]:
    """Return the measures of a sample under policies, which were checked before."""
    made = load(what.sources, library=what.library)
    assert made.policy_set is not None, "the checker accepted the policies with today's numbers only"
    variant = PolicyVariant("tuned", made.policy_set, what.signals, what.metrics)
    done = run(what.sample.scenario, variant, seed=what.sample.seed, stopwatch=stopwatch)
    return measured(done, what.sample.scenario)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of a search."""

    objective: str
    parameters: tuple[Parameter, ...]
    samples: tuple[Sample, ...]
    trials: tuple[Trial, ...]
    """The first is today's."""
    values: Mapping[str, float]
    comparisons: tuple[Comparison, ...]
    """On the judging and on the confirming part; none where nothing was found."""
    refusals: tuple[str, ...]
    difference: str
    """Of the policies, as `diff -u` shows it; empty where the numbers are refused."""
    complete: bool
    """Whether all trials were made."""

    @property
    def accepted(self) -> bool:
        """Return whether the numbers are better by more than noise, and nothing else is worse."""
        return not self.refusals

    def on(self, purpose: Purpose) -> list[Comparison]:
        """Return the comparisons on a part of the traces."""
        return [one for one in self.comparisons if one.purpose is purpose]

    def verdict(self) -> str:
        """Return the result in one sentence."""
        if not self.comparisons:
            return "not changed: no numbers were better than today's in the search"
        judged = next(one for one in self.on(Purpose.JUDGE) if one.measure.name == self.objective)
        change = f"`{self.objective}` {judged.measure.text(judged.change, sign=True)}"
        if len(judged.today) > 1:
            change += f" ± {judged.measure.text(judged.standard_error)}"
        pairs = f"over {len(judged.today)} paired runs that the search did not use"
        return f"better: {change} {pairs}" if self.accepted else f"refused: {change} {pairs}"

    def data(self) -> dict[str, Any]:
        """Return everything for programs."""
        return {
            "accepted": self.accepted,
            "complete": self.complete,
            "verdict": self.verdict(),
            "objective": {"name": self.objective, "meaning": MEASURES[self.objective].meaning},
            "parameters": [
                {
                    "name": each.name,
                    "place": place(each),
                    "unit": each.unit,
                    "today": each.today,
                    "tuned": self.values[each.name],
                    "low": each.low,
                    "high": each.high,
                    "scale": "logarithmic" if each.logarithmic else "linear",
                }
                for each in self.parameters
            ],
            "samples": [
                {"for": each.purpose.value, "name": each.name, "pods": len(each.scenario.arrivals), "seed": each.seed}
                for each in self.samples
            ],
            "trials": [{"values": dict(t.values), "costs": list(t.costs), "cost": t.cost} for t in self.trials],
            "comparisons": [one.data() for one in self.comparisons],
            "refusals": list(self.refusals),
            "difference": self.difference,
        }


def place(parameter: Parameter) -> str:
    """Return where a number stands: `FILE:LINE`."""
    source = parameter.span.source
    return f"{source.name}:{source.position(parameter.span.start)[0]}"


def number_rows(tuned: Tuned) -> list[tuple[str, ...]]:
    """Return a table of the numbers: where, today's, tuned, range."""
    rows: list[tuple[str, ...]] = [("number", "where", "today", "tuned", "range")]
    for each in tuned.parameters:
        scale = ", logarithmic" if each.logarithmic else ""
        rows.append(
            (
                each.name, place(each), each.text(each.today), each.text(tuned.values[each.name]),
                f"{each.text(each.low)} to {each.text(each.high)}{scale}",
            )
        )  # fmt: skip
    return rows


def measure_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return a table of the measures: today, tuned, the change with its standard error."""
    rows: list[tuple[str, ...]] = [("measure", "part", "today", "tuned", "change", "±", "")]
    for one in comparisons:
        mean = [sum(side) / len(side) for side in (one.today, one.tuned)]
        mark = "better" if one.is_better else "worse" if one.is_worse else ""
        error = one.measure.text(one.standard_error) if len(one.today) > 1 else "–"
        rows.append(
            (
                one.measure.name, one.purpose.value, one.measure.text(mean[0]), one.measure.text(mean[1]),
                one.measure.text(one.change, sign=True), error, mark,
            )
        )  # fmt: skip
    return rows
