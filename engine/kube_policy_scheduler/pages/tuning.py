"""The page of `policyctl tune`: what was found, on which evidence, and every trial as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_policy_scheduler.pages.charts import Chart, bar_chart, line_chart, scatter_chart
from kube_policy_scheduler.pages.environment import page

_PARTS = {"judge": "judging", "confirm": "confirming"}


def tuning_page(found: Mapping[str, Any], numbers: Sequence[Sequence[str]], measures: Sequence[Sequence[str]]) -> str:
    """Return the page.

    Args:
        found: what `policyctl tune --format json` prints.
        numbers: a table of the numbers, its head first.
        measures: a table of the measures, its head first.
    """
    counts = {part: [one for one in found["samples"] if one["for"] == part] for part in ("search", *_PARTS)}
    return page(
        "tuning.html", found=found, numbers=numbers, measures=measures, parts_of=counts, charts=list(_charts(found))
    )


def _charts(found: Mapping[str, Any]) -> list[tuple[Chart, str]]:
    objective, trials = found["objective"]["name"], found["trials"]
    if not trials:
        return []
    scale, unit = _scale(found)
    costs = [scale * trial["cost"] for trial in trials]
    best = [min(costs[: number + 1]) for number in range(len(costs))]
    places = [float(number) for number in range(1, len(costs) + 1)]
    drawn = [
        (
            line_chart(
                f"{objective} on the searching part, trial by trial",
                {"trial": (places, costs), "best so far": (places, best)},
                across="trial", up=unit, low=None,
            ),
            "The first trial has today's numbers.",
        )
    ]  # fmt: skip
    for one in found["parameters"]:
        tried = [trial["values"][one["name"]] for trial in trials]
        shown = {"trial": (tried, costs), "today": ([one["today"]], [costs[0]])}
        if one["tuned"] != one["today"]:
            at = min(range(len(trials)), key=lambda number: trials[number]["values"] != _values(found))
            shown["tuned"] = ([one["tuned"]], [costs[at]])
        across = f"{one['name']}{', ' + one['unit'] if one['unit'] else ''}"
        chart = scatter_chart(
            f"{objective} by {one['name']}", shown, across=across, up=unit, logarithmic=one["scale"] == "logarithmic"
        )
        drawn.append((chart, "Each point is a trial; the other numbers differ as well."))
    for one in found["comparisons"]:
        if one["measure"] == objective:
            names = [each["name"] for each in found["samples"] if each["for"] == one["on"]]
            sides = {"today": [scale * x for x in one["today"]], "tuned": [scale * x for x in one["tuned"]]}
            title = f"{objective}, run by run, on the {_PARTS[one['on']]} part"
            drawn.append((bar_chart(title, names, sides, up=unit), "The search did not use these runs."))
    return drawn


def _values(found: Mapping[str, Any]) -> dict[str, float]:
    return {one["name"]: one["tuned"] for one in found["parameters"]}


def _scale(found: Mapping[str, Any]) -> tuple[float, str]:
    """Return what a value of the objective is multiplied with to be drawn, and its unit."""
    name = found["objective"]["name"]
    if name in ("wait", "price"):
        return 1.0, "s" if name == "wait" else "price per hour"
    return 100.0, "%"
