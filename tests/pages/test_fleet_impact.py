"""The page of `policyctl impact --fleet`: what the JSON says is on it, and names stay texts."""

from __future__ import annotations

import re
from html import unescape

from kube_policy_scheduler.pages.reports import fleet_impact_page
from kube_policy_scheduler.tooling.impact.fleet_report import data
from tests.fleet.fleets import workload
from tests.tooling.test_impact_fleet import BACK, STAYS, fleet, impact


def texts(page: str) -> str:
    """Return what a reader sees."""
    return " ".join(unescape(re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)).split())


def test_the_page_has_what_the_json_says() -> None:
    found = data(impact(fleet(workload(5, {"c": 5}), workload(3, {"b": 3}, name="back")), STAYS, BACK))
    shown = texts(fleet_impact_page(found))
    assert found["headline"] in shown
    for change in found["changes"]:
        for key in ("workload", "moved"):
            assert change[key] in shown
    for row in found["figures"]:
        assert " ".join(row.values()) in shown


def test_names_are_texts() -> None:
    found = data(impact(fleet(workload(5, {"c": 5}, name="<script>x</script>")), STAYS, BACK))
    page = fleet_impact_page(found)
    assert "<script>x" not in page
    assert "Deployment shop/<script>x</script>" in unescape(page)
