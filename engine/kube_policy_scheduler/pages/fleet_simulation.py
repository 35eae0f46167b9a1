"""The page of `policyctl simulate --fleet`: what happened under each policy, as figures and over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kube_policy_scheduler.pages.charts import line_chart
from kube_policy_scheduler.pages.environment import page
from kube_policy_scheduler.pages.simulation import Drawn, chart_values, unit_of_time
from kube_policy_scheduler.times import short_duration

MOST_CLUSTERS = 6
"""Clusters in a chart: as many as there are colours."""
MOST_ROWS = 2_000
"""Of a timeline."""


def fleet_simulation_page(
    found: Mapping[str, Any],
    summary: str,
    *,
    tables: Sequence[tuple[str, Sequence[tuple[str, ...]]]],
    notes: Sequence[str],
) -> str:
    """Return the page.

    Args:
        found: what `policyctl simulate --fleet … --format json` prints.
        summary: what was simulated, in one sentence.
        tables: each with its title; the first row is the head.
        notes: sentences about the numbers.
    """
    timelines = [(each["name"], [_row(one) for one in each["happenings"][:MOST_ROWS]]) for each in found["variants"]]
    left = {each["name"]: len(each["happenings"]) - MOST_ROWS for each in found["variants"]}
    return page(
        "fleet_simulation.html",
        found=found,
        summary=summary,
        tables=tables,
        notes=notes,
        charts=_charts(found["variants"]),
        timelines=timelines,
        left=left,
    )


def _row(one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return (short_duration(one["at"]) if one["at"] else "0s", one["kind"], one["what"], one["text"])


def _charts(variants: Sequence[Mapping[str, Any]]) -> list[Drawn]:
    drawn: list[Drawn] = []
    longest = max((sample["at"] for each in variants for sample in each["samples"]), default=0)
    size, unit = unit_of_time(longest)
    across = f"time, {unit}"

    def over_time(
        title: str, series: Mapping[str, tuple[Sequence[float], Sequence[float]]], up: str, caption: str = ""
    ) -> None:
        drawn.append(
            (line_chart(title, series, across=across, up=up, steps=True), caption, *chart_values(series, across, up))
        )

    def each_variant(read: Callable[[Mapping[str, Any]], float]) -> dict[str, tuple[list[float], list[float]]]:
        return {each["name"]: _points(each, size, read) for each in variants}

    over_time(
        "Replicas that do not run",
        each_variant(lambda sample: max(0, sample["wanted"] - sum(sample["running"].values()))),
        "replicas",
    )
    over_time("Replicas without a cluster", each_variant(lambda s: max(0, s["wanted"] - s["placed"])), "replicas")
    if any(each["hourlyPriceMean"] is not None for each in variants):
        over_time("Price", each_variant(lambda sample: sample["hourlyPrice"] or 0.0), "per hour")
    for each in variants:
        most = sorted(each["clusters"], key=lambda name: -_most(each, name))[:MOST_CLUSTERS]
        shown = [name for name in each["clusters"] if name in most and _most(each, name)]
        series = {name: _points(each, size, lambda s, name=name: s["running"].get(name, 0)) for name in shown}  # type: ignore[misc]
        if series:
            over_time(
                f"Replicas that run: {each['name']}",
                series,
                "replicas",
                f"The {MOST_CLUSTERS} clusters with the most." if len(each["clusters"]) > MOST_CLUSTERS else "",
            )
    return drawn


def _most(variant: Mapping[str, Any], cluster: str) -> int:
    return max((sample["running"].get(cluster, 0) for sample in variant["samples"]), default=0)


def _points(
    variant: Mapping[str, Any], size: float, read: Callable[[Mapping[str, Any]], float]
) -> tuple[list[float], list[float]]:
    """Return a line that goes on to the end of the run."""
    at = [sample["at"] / size for sample in variant["samples"]]
    values = [float(read(sample)) for sample in variant["samples"]]
    end = variant["seconds"] / size
    return ([*at, end], [*values, values[-1]]) if at and end > at[-1] else (at, values)
