"""The page of `policyctl simulate`: what happened to the pods under each policy, as figures and over time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from kube_policy_scheduler.pages.charts import Chart, bar_chart, line_chart, stacked
from kube_policy_scheduler.pages.environment import page

_SHORT = {"memory": "memory", "cpu": "cpu"}
_UNITS = ((172800.0, 86400.0, "days"), (7200.0, 3600.0, "hours"), (300.0, 60.0, "minutes"))


def simulation_page(
    found: Mapping[str, Any], summary: str, differences: Sequence[tuple[str, Sequence[tuple[str, ...]]]] = ()
) -> str:
    """Return the page.

    Args:
        found: what `policyctl simulate --format json` prints.
        summary: what was simulated, in one sentence.
        differences: tables of what is compared with another policy, each with its title; the first row is the head.
    """
    main = found["resources"][0]["name"]
    shown = [variant for variant in found["variants"] if variant["runs"]]
    return page(
        "simulation.html",
        found=found,
        summary=summary,
        main=_name(main),
        names=[_name(resource["name"]) for resource in found["resources"]],
        keys=[resource["name"] for resource in found["resources"]],
        charts=_charts(found, shown, main),
        differences=differences,
        changing=any(_nodes_change(each) for each in shown),
        queues=sorted(
            ({**use, "policy": each["name"]} for each in shown for use in each["queues"] if _is_shown(use)),
            key=lambda use: use["name"],
        ),
        worst=sorted(
            ((each["name"], reason, number) for each in shown for reason, number in each["reasons"].items()),
            key=lambda row: (row[0], -row[2], row[1]),
        ),
    )


def _is_shown(use: Mapping[str, Any]) -> bool:
    """Return whether a queue has something to do with a resource that any queue names."""
    return bool(use["guaranteedMean"]["max"] or use["usedPeak"]["max"])


Drawn: TypeAlias = tuple[Chart, str, Sequence[str], Sequence[Sequence[str]]]
"""A chart, a sentence below it, and the table of its values: the head and the rows."""


def _nodes_change(variant: Mapping[str, Any]) -> bool:
    """Return whether nodes come or go in a run of a variant."""
    return any(len({sample["nodes"] for sample in run["samples"]}) > 1 for run in variant["runs"])


def _charts(found: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], main: str) -> list[Drawn]:
    name = _name(main)
    drawn: list[Drawn] = []
    is_dropped = found["mode"] == "dropped"
    if is_dropped:
        across = f"{name} requested, % of capacity"
        place: Callable[[Mapping[str, Any]], float] = lambda sample: 100 * sample["arrived"]  # noqa: E731
        alone = [each for each in variants if each["marks"]]
        if alone:
            last = alone[0]["marks"][-1]["arrived"]
            bars = bar_chart(
                f"{name} in use when {100 * last:g} % was requested",
                [each["name"] for each in alone],
                {"in use": [100 * each["marks"][-1]["allocated"]["mean"] for each in alone]},
                up="%",
            )
            drawn.append((bars, "Mean over the seeds.", (), ()))
    else:
        size, unit = _unit(variants)
        across = f"time, {unit}"
        place = lambda sample: sample["at"] / size  # noqa: E731
    seed = f"Seed {found['seeds'][0]}." if len(found["seeds"]) > 1 else ""

    def over_time(title: str, read: Callable[[Mapping[str, Any]], float], up: str, caption: str = seed) -> None:
        series = {each["name"]: _series(each["runs"][0]["samples"], place, read) for each in variants}
        chart = line_chart(title, series, across=across, up=up, steps=not is_dropped)
        drawn.append((chart, caption, *chart_values(series, across, up)))

    over_time(f"{name} in use", lambda sample: 100 * sample["used"][main], "%")
    for resource in found["resources"][1:]:
        key = resource["name"]
        over_time(f"{_name(key)} in use", lambda sample, key=key: 100 * sample["used"][key], "%")  # type: ignore[misc]
    if all(each["fragmentationLast"] is not None for each in variants):
        over_time(
            f"{name}: free capacity that no pod can use",
            lambda sample: 100 * (sample["fragmentation"] or 0.0),
            "% of the free capacity",
            "The mean over the pods of the workload.",
        )
    over_time(
        f"Spread of {name} over the nodes",
        lambda sample: 100 * sample["spread"],
        "percentage points",
        "The standard deviation of the share in use; 0 if all nodes are used equally.",
    )
    over_time("Pods dropped" if is_dropped else "Pods pending", lambda sample: sample["pending"], "pods")
    over_time("Pods bound", lambda sample: sample["running"], "pods")
    if any(_nodes_change(each) for each in variants):
        over_time("Nodes", lambda sample: sample["nodes"], "nodes")
    if any(sample["hourlyPrice"] for each in variants for sample in each["runs"][0]["samples"]):
        over_time("Price of the nodes", lambda sample: sample["hourlyPrice"] or 0.0, "per hour")
    queues = " ".join(filter(None, (GUARANTEES, seed)))
    return [*drawn, *((chart, queues, (), ()) for chart in queue_charts(found)), *_queues_side_by_side(found, variants)]


def _queues_side_by_side(found: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> Iterator[Drawn]:
    """Yield a chart for each of the queues that use most, with a line for each variant, where variants are compared."""
    if not found.get("against"):
        return
    size, unit = _unit(variants)
    across = "pods that have arrived" if found["mode"] == "dropped" else f"time, {unit}"
    runs = {each["name"]: each["runs"][0] for each in variants if each["runs"][0]["queues"]}
    uses: dict[tuple[str, str], dict[str, Sequence[float]]] = {}
    for name, run in runs.items():
        for queue in run["queues"]:
            if any(queue["used"]):
                uses.setdefault((queue["name"], queue["resource"]), {})[name] = queue["used"]
    most = sorted(uses.items(), key=lambda item: -max(sum(used) / len(used) for used in item[1].values()))
    for (queue, resource), by_variant in most[:_MOST_LINES]:
        series = {}
        for name, used in by_variant.items():
            at = [sample["at"] for sample in runs[name]["samples"]]
            places = at if found["mode"] == "dropped" else [each / size for each in at]
            series[name] = (places, [100 * value for value in used])
        up = "% of capacity"
        chart = line_chart(f"{_name(resource)} of queue {queue}", series, across=across, up=up, steps=True)
        yield (chart, "", *chart_values(series, across, up))


_MOST_ROWS = 13
"""Moments in the table of a chart."""


def chart_values(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]], across: str, up: str
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the values of lines as a table: some moments, evenly spread, with what each line is at them."""
    ends = [places[-1] for places, _ in series.values() if places]
    if not ends or max(ends) <= 0:
        return (), ()
    rows = []
    for number in range(_MOST_ROWS):
        at = max(ends) * number / (_MOST_ROWS - 1)
        row = [f"{at:,.4g}"]
        for places, values in series.values():
            before = bisect_right(places, at) - 1
            row.append(f"{values[max(before, 0)]:,.4g}" if values and at <= places[-1] else "–")
        rows.append(row)
    return (across, *(f"{name}, {up}" for name in series)), rows


GUARANTEES = "Dashed: the guarantee of the queue."


def queue_charts(found: Mapping[str, Any]) -> Iterator[Chart]:
    """Yield what queues use over time: a chart for each variant and resource, with the queues that use most.

    found: what `policyctl simulate --format json` prints.
    """
    shown = [variant for variant in found["variants"] if variant["runs"] and variant["runs"][0]["queues"]]
    size, unit = _unit(shown)
    is_dropped = found["mode"] == "dropped"
    for variant in shown:
        run = variant["runs"][0]
        at = [sample["at"] if is_dropped else sample["at"] / size for sample in run["samples"]]
        parents = {use["parent"] for use in variant["queues"]}
        leaves = [each for each in run["queues"] if each["name"] not in parents]
        for resource in dict.fromkeys(each["resource"] for each in leaves):
            most = sorted(
                (each for each in leaves if each["resource"] == resource and any(each["used"])),
                key=lambda each: -sum(each["used"]),
            )[:_MOST_LINES]
            if not most:
                continue
            ordered = [each for each in leaves if each in most]
            yield line_chart(
                f"{_name(resource)} by queue: {variant['name']}",
                {each["name"]: (at, [100 * value for value in each["used"]]) for each in ordered},
                across="pods that have arrived" if is_dropped else f"time, {unit}",
                up="% of capacity",
                steps=True,
                levels={each["name"]: 100 * each["guaranteed"][0] for each in ordered if each["guaranteed"][0]},
            )


def shares_drawing(found: Mapping[str, Any]) -> str:
    """Return the charts of queues as one SVG document; found: what `policyctl simulate --format json` prints."""
    return stacked(list(queue_charts(found)))


_MOST_LINES = 6
"""Queues in a chart: as many as there are colours."""


def _series(
    samples: Sequence[Mapping[str, Any]],
    place: Callable[[Mapping[str, Any]], float],
    read: Callable[[Mapping[str, Any]], float],
) -> tuple[list[float], list[float]]:
    return [place(sample) for sample in samples], [read(sample) for sample in samples]


def _unit(variants: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
    """Return the seconds of a unit in which the time of some runs can be read, and its name."""
    longest = max((sample["at"] for each in variants for run in each["runs"] for sample in run["samples"]), default=0)
    return unit_of_time(longest)


def unit_of_time(longest: float) -> tuple[float, str]:
    """Return the seconds of a unit in which so many seconds can be read, and its name."""
    for limit, size, unit in _UNITS:
        if longest >= limit:
            return size, unit
    return 1.0, "seconds"


def _name(resource: str) -> str:
    return _SHORT.get(resource, resource.rpartition("/")[2])
