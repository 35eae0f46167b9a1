"""The page of `policyctl drift`: which pods are where they would not be put any more, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_policy_scheduler.pages.environment import page
from kube_policy_scheduler.pages.excerpts import excerpt

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
