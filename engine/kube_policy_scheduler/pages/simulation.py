"""The page of `policyctl simulate`: what happened to the pods under each policy, as figures and over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kube_policy_scheduler.pages.charts import Chart, bar_chart, line_chart, stacked
from kube_policy_scheduler.pages.environment import page

_SHORT = {"memory": "memory", "cpu": "cpu"}
_UNITS = ((172800.0, 86400.0, "days"), (7200.0, 3600.0, "hours"), (300.0, 60.0, "minutes"))


def simulation_page(found: Mapping[str, Any], summary: str) -> str:
    """Return the page.

    Args:
        found: what `policyctl simulate --format json` prints.
        summary: what was simulated, in one sentence.
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


def _charts(found: Mapping[str, Any], variants: Sequence[Mapping[str, Any]], main: str) -> list[tuple[Chart, str]]:
    name = _name(main)
    drawn: list[tuple[Chart, str]] = []
    if found["mode"] == "dropped":
        across = f"{name} asked for, % of what there is"
        place: Callable[[Mapping[str, Any]], float] = lambda sample: 100 * sample["arrived"]  # noqa: E731
        alone = [each for each in variants if each["marks"]]
        if alone:
            last = alone[0]["marks"][-1]["arrived"]
            drawn.append(
                (
                    bar_chart(
                        f"{name} in use when {100 * last:g} % had been asked for",
                        [each["name"] for each in alone],
                        {"in use": [100 * each["marks"][-1]["allocated"]["mean"] for each in alone]},
                        up="%",
                    ),
                    "Mean over the seeds.",
                )
            )
    else:
        size, unit = _unit(variants)
        across = f"time, {unit}"
        place = lambda sample: sample["at"] / size  # noqa: E731

    def over_time(title: str, read: Callable[[Mapping[str, Any]], float], up: str, caption: str) -> None:
        series = {each["name"]: _series(each["runs"][0]["samples"], place, read) for each in variants}
        drawn.append((line_chart(title, series, across=across, up=up, steps=found["mode"] == "queued"), caption))

    seed = f"Seed {found['seeds'][0]}." if len(found["seeds"]) > 1 else ""
    over_time(f"{name} in use", lambda sample: 100 * sample["used"][main], "%", seed)
    for resource in found["resources"][1:]:
        key = resource["name"]
        over_time(f"{_name(key)} in use", lambda sample, key=key: 100 * sample["used"][key], "%", seed)  # type: ignore[misc]
    if all(each["fragmentationLast"] is not None for each in variants):
        over_time(
            f"{name}: free room that is of no use",
            lambda sample: 100 * (sample["fragmentation"] or 0.0),
            "% of the free room",
            "In expectation over a pod of the workload.",
        )
    over_time(
        f"Spread of {name} over the nodes",
        lambda sample: 100 * sample["spread"],
        "percentage points",
        "The standard deviation of the share in use; 0 where all nodes are used alike.",
    )
    pending = "Pods dropped" if found["mode"] == "dropped" else "Pods pending"
    over_time(pending, lambda sample: sample["pending"], "pods", seed)
    return [*drawn, *((chart, " ".join(filter(None, (GUARANTEES, seed)))) for chart in queue_charts(found))]


GUARANTEES = "Dashed: what is guaranteed to the queue."


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
                up="% of what there is",
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
    """Return the seconds of a unit in which the time can be read, and its name."""
    longest = max((sample["at"] for each in variants for run in each["runs"] for sample in run["samples"]), default=0)
    for limit, size, unit in _UNITS:
        if longest >= limit:
            return size, unit
    return 1.0, "seconds"


def _name(resource: str) -> str:
    return _SHORT.get(resource, resource.rpartition("/")[2])
