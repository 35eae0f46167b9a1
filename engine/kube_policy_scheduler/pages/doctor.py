"""The page of `policyctl doctor`: what was found in policies, cluster and metrics, the worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_policy_scheduler.pages.environment import page
from kube_policy_scheduler.pages.excerpts import excerpt

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
