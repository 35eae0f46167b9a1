"""From a shadow's totals to what the status page says of them. Asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_policy_scheduler.pages import status as shown
from kube_policy_scheduler.wording import percent, plural


def shadow_section(summary: Mapping[str, Any]) -> shown.Shadow:
    """Return the section of the page about a summary of `ShadowReport`."""
    verdicts = list(summary["verdicts"])
    text = (
        f"Looks at what {', '.join(summary['schedulers'])} places, and places nothing itself:"
        f" {plural(summary['pods'], 'pod')} compared since the start."
    )
    return shown.Shadow(
        text,
        [verdict.replace("-", " ") for verdict in verdicts],
        [
            shown.ShadowRow(
                name or "no policy",
                [found["verdicts"][verdict] for verdict in verdicts],
                "" if found["meanMargin"] is None else percent(found["meanMargin"]),
                ", ".join(f"{clause} ({number})" for clause, number in found["refusingClauses"].items()),
            )
            for name, found in summary["policies"].items()
        ],
    )
