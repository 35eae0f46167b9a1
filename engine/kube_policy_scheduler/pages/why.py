"""The page of `policyctl why`: one decision, from the sentence that matters to the last subexpression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_policy_scheduler.pages.environment import page
from kube_policy_scheduler.pages.excerpts import Excerpt, excerpt

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
