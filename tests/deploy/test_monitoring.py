"""Alerts and dashboard: promtool accepts and tests the rules; all queried metrics are exported."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.deploy.exported import registry

MONITORING = Path(__file__).parents[2] / "deploy" / "components" / "monitoring"
TESTS = Path(__file__).with_name("alerts.test.yaml")
OTHERS = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
"""Prometheus' own, and those of every Python process."""
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
"""Of the samples of a metric, by its type."""
RULES = yaml.safe_load((MONITORING / "prometheus-rule.yaml").read_text())["spec"]
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    shutil.copy(TESTS, tmp_path)
    return tmp_path


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("arguments", ["check rules rules.yaml", "test rules alerts.test.yaml"])
def test_promtool_accepts_and_tests_the_rules(folder: Path, arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments.split()], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_both_ways() -> None:
    fired, silent = set(), set()
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        for case in test["alert_rule_test"]:
            (fired if case.get("exp_alerts") else silent).add(case["alertname"])
    names = {rule["alert"] for rule in ALERTS}
    assert fired == names
    assert silent == names


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in ALERTS)
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (each["expr"] for each in dashboard()["annotations"]["list"])


def exported() -> set[str]:
    """Every name that a scrape can show."""
    names = set()
    for family in registry().collect():
        names.add(family.name)
        suffixes = {
            "counter": ("_total",),
            "histogram": ("_bucket", "_sum", "_count"),
            "summary": ("_sum", "_count"),
        }.get(family.type, ())
        names.update(family.name + suffix for suffix in suffixes)
    return names


@pytest.mark.parametrize("expression", [*dict.fromkeys(expressions())])
def test_what_is_asked_for_is_exported(expression: str) -> None:
    query = expression.replace("$__rate_interval", "5m").replace("$job", ".*")
    promql_parser.parse(query)
    asked = set(
        re.findall(r"\b(?:scheduler|policy_scheduler|leader_election|rest_client|process|up)\w*(?=[{\[) ]|$)", query)
    )
    asked = {name for name in asked if f'"{name}"' not in query}
    assert asked
    assert asked <= exported() | OTHERS


def test_panels_have_their_own_places() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
