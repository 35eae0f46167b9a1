"""The page of a recorded decision: what `policyctl why --record … --html` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_policy_scheduler.pages.environment import page

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
