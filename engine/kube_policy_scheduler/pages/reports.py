"""The pages of reports: capacity, doctor, drift, impact, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_policy_scheduler.pages.charts import Chart, bar_chart, histogram
from kube_policy_scheduler.pages.environment import Excerpt, excerpt, page

_WORST_FIRST = ("problem", "warning", "could-not-check", "ok")


def doctor_page(found: Mapping[str, Any], *, sources: Mapping[str, str], examined: str) -> str:
    """Return the page.

    Args:
        found: what `policyctl doctor --format json` prints.
        sources: texts of the policies by name, for excerpts.
        examined: which cluster and which metrics were looked at.
    """
    findings: Sequence[Mapping[str, Any]] = found["findings"]
    checks = dict.fromkeys(one["check"] for one in findings)
    places = {one["place"] for one in findings if one["place"]}
    made = {place: excerpt(place, sources) for place in places}
    return page(
        "doctor.html",
        found=found,
        examined=examined,
        excerpts={place: one for place, one in made.items() if one is not None},
        groups=[(check, sorted((one for one in findings if one["check"] == check), key=_severity)) for check in checks],
    )


def _severity(finding: Mapping[str, Any]) -> int:
    return _WORST_FIRST.index(finding["status"])


MOST_PODS = 2000
"""Pods listed; of more, the page would be slow to open."""


def drift_page(found: Mapping[str, Any], *, sources: Mapping[str, str], ruled_by: str) -> str:
    """Return the page.

    Args:
        found: what `policyctl drift --format json` prints.
        sources: texts of the policies by name, for excerpts.
        ruled_by: where the rules come from.
    """
    made = {cause["place"]: excerpt(cause["place"], sources) for cause in found["causes"]}
    pods = found["pods"]
    return page(
        "drift.html",
        found=found,
        ruled_by=ruled_by,
        excerpts={place: one for place, one in made.items() if one is not None},
        pods=pods[:MOST_PODS],
        hidden=max(0, len(pods) - MOST_PODS),
    )


_OF_LOSSES = {"placed": "placed", "no place": "unplaced", "never come back": "gone"}
_WIDEST = 40
"""Bars of a chart; of more, the largest are drawn."""


def capacity_page(found: Mapping[str, Any], *, ruled_by: str) -> str:
    """Return the page.

    Args:
        found: what `policyctl capacity --format json` prints.
        ruled_by: where the rules come from.
    """
    return page("capacity.html", found=found, ruled_by=ruled_by, most=MOST_PODS, charts=_capacity_charts(found))


def _capacity_charts(found: Mapping[str, Any]) -> Mapping[str, Chart]:
    charts: dict[str, Chart] = {}
    more, pending, removable, losses = (found[key] for key in ("more", "pending", "removable", "losses"))
    if more is not None and more["nodes"]:
        charts["more"] = histogram(
            "Copies on a node",
            {"nodes": list(more["nodes"].values())},
            across="copies of the pod on a node",
            up="nodes",
        )
    if pending is not None and pending["needed"]:
        needed = pending["needed"][:_WIDEST]
        charts["pending"] = bar_chart(
            "New nodes for the pending pods",
            [one["shape"]["like"] for one in needed],
            {"by the scheduling cycle": [one["nodes"] for one in needed], "at least": [one["bound"] for one in needed]},
            up="nodes",
        )
    if removable is not None and removable["bound"]:
        kept = {one["reason"]: [len(one["nodes"])] for one in removable["kept"]}
        charts["removable"] = bar_chart(
            "Nodes that you can remove, and that stay",
            ["nodes"],
            {"can be removed": [len(removable["removable"])], "at most": [removable["bound"]], **kept},
            up="nodes",
        )
    if losses:
        shown = sorted(losses, key=lambda one: -one["missing"])[:_WIDEST]
        charts["losses"] = bar_chart(
            f"Pods when a value of {losses[0]['label']} is lost",
            [one["value"] for one in shown],
            {key: [one[name] for one in shown] for key, name in _OF_LOSSES.items()},
            up="pods",
            bad="never come back",
        )
    return charts


_ORDER = {"lost": 0, "gained": 1, "moved": 2, "devices": 3, "other": 4}


def impact_page(found: Mapping[str, Any], *, sources: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        found: what `policyctl impact --format json` prints.
        sources: texts of all policies by name, for excerpts.
    """
    excerpts: dict[str, Excerpt] = {}
    for cause in found["causes"]:
        made = excerpt(cause["place"], sources)
        if made is not None:
            excerpts[cause["place"]] = made
    changes = sorted(found["changes"], key=lambda change: _ORDER[change["kind"]])
    return page(
        "impact.html",
        found=found,
        excerpts=excerpts,
        changes=changes[:MOST_PODS],
        hidden=max(0, len(changes) - MOST_PODS),
        charts=list(_charts(found)),
    )


def _charts(found: Mapping[str, Any]) -> list[Chart]:
    charts = []
    sides = {"old": found["before"], "new": found["after"]}
    for at, load in enumerate(found["before"]["loads"]):
        shares = {name: [100 * share for share in side["loads"][at]["shares"]] for name, side in sides.items()}
        most = max(100.0, *(value for values in shares.values() for value in values))
        charts.append(
            histogram(
                f"Nodes by requested {load['resource']}", shares, across="per cent of what the node offers", up="nodes",
                within=(0.0, most),
                about="; ".join(f"{name}: mean {sum(v) / len(v):.1f} %" for name, v in shares.items() if v),
            )
        )  # fmt: skip
    zones = sorted(found["before"]["zones"])
    if len(zones) > 1:
        counts = {name: [float(side["zones"].get(zone, 0)) for zone in zones] for name, side in sides.items()}
        charts.append(bar_chart("Pods by zone", zones, counts, up="pods"))
    return charts


def fleet_impact_page(found: Mapping[str, Any]) -> str:
    """Return the page. found: what `policyctl impact --fleet … --format json` prints."""
    sides = {"old": found["before"]["replicas"], "new": found["after"]["replicas"]}
    names = sorted({*sides["old"], *sides["new"]}, key=lambda name: -max(side.get(name, 0) for side in sides.values()))
    shown = names[:_WIDEST]
    counts = {key: [float(side.get(name, 0)) for name in shown] for key, side in sides.items()}
    changes = found["changes"]
    return page(
        "fleet_impact.html",
        found=found,
        figures=[tuple(row.values()) for row in found["figures"]],
        changes=changes[:MOST_PODS],
        hidden=max(0, len(changes) - MOST_PODS),
        charts=[bar_chart("Replicas by cluster", shown, counts, up="replicas")] if shown else [],
    )


_ABSENT: Mapping[str, Any] = {
    "message": "", "nodes": 0, "feasible": 0, "ties": 1, "attempt": 1,
    "top": (), "refused": {}, "reasons": (), "metrics": (), "victims": (),
}  # fmt: skip
"""Members that a record leaves out where they say nothing."""


def recorded_page(found: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        found: what `policyctl why --record … --format json` prints.
    """
    record = {**_ABSENT, **found["record"]}
    top = record["top"]
    return page(
        "recorded.html",
        found=found,
        record=record,
        pod=f"{record['pod']['metadata']['namespace']}/{record['pod']['metadata']['name']}",
        top=top,
        names=list(dict.fromkeys(name for one in top for name in one["scores"])),
        reasons=[(one["filter"], one["reason"], one["nodes"]) for one in found["reasons"]],
        refused=sorted(record["refused"].items(), key=lambda item: (-item[1], item[0])),
    )


_COLOURS = 6
"""Series that `base.html` has colours for."""


def why_page(found: Mapping[str, Any], *, sources: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        found: what `policyctl why --format json` prints.
        sources: texts of the policies by name, for excerpts.
    """
    places = [line["place"] for line in found["lines"]]
    if found["cause"] is not None:
        places.append(found["cause"]["place"])
    rank = found["ranking"]
    if rank is not None:
        places.extend(term["place"] for term in rank["terms"])
    excerpts: dict[str, Excerpt] = {}
    for place in places:
        made = excerpt(place, sources)
        if made is not None:
            excerpts[place] = made
    quiet = [line for line in found["lines"] if not line["alone"] and not line["place"]]
    return page(
        "why.html",
        found=found,
        excerpts=excerpts,
        lines=[line for line in found["lines"] if line not in quiet],
        quiet=[line["name"] for line in quiet],
        bars=_bars(rank) if rank is not None else (),
    )


def _bars(rank: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return for each node the shares of the widest bar that its positive scores take, and what it loses."""
    terms = rank["terms"]
    above = [sum(max(0.0, term["scores"][at]) for term in terms) for at in range(len(rank["nodes"]))]
    widest = max(above, default=0.0) or 1.0
    return [
        {
            "node": node,
            "total": rank["totals"][at],
            "rank": rank["ranks"][at],
            "pieces": [
                {
                    "name": term["name"],
                    "score": term["scores"][at],
                    "percent": 100 * term["scores"][at] / widest,
                    "colour": number % _COLOURS + 1,
                }
                for number, term in enumerate(terms)
                if term["scores"][at] > 0
            ],
            "minus": [{"name": term["name"], "score": term["scores"][at]} for term in terms if term["scores"][at] < 0],
        }
        for at, node in enumerate(rank["nodes"])
    ]
