"""The page of `policyctl impact`: what a change of policies does, to whom, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_policy_scheduler.pages.charts import Chart, bar_chart, histogram
from kube_policy_scheduler.pages.environment import page
from kube_policy_scheduler.pages.excerpts import Excerpt, excerpt

MOST_PODS = 2000
"""Pods listed; of more, the page would be slow to open."""
_ORDER = {"lost": 0, "gained": 1, "moved": 2, "other": 3}


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
