"""Alerts and dashboard of fleets: promtool accepts and tests the rules; all queried metrics are exported."""

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

from kube_policy_scheduler.daemon.fleet.fleet_metrics import FleetMetrics, FleetState
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, PlacementAlone
from kube_policy_scheduler.times import Steady
from tests.deploy.manifests import DEPLOY

MONITORING = DEPLOY / "fleet/monitoring"
TESTS = Path(__file__).with_name("fleet-alerts.test.yaml")
RULES = yaml.safe_load((MONITORING / "prometheus-rule.yaml").read_text())["spec"]
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
PAGE = (DEPLOY / "FLEET.md").read_text(encoding="utf-8")


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("arguments", ["check rules rules.yaml", "test rules fleet-alerts.test.yaml"])
def test_promtool_accepts_and_tests_the_rules(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    shutil.copy(TESTS, tmp_path)
    done = subprocess.run(["promtool", *arguments.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_both_ways() -> None:
    fired, silent = set(), set()
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        for case in test["alert_rule_test"]:
            (fired if case.get("exp_alerts") else silent).add(case["alertname"])
    names = {rule["alert"] for rule in ALERTS}
    assert (fired, silent) == (names, names)


def test_the_page_says_what_to_do_for_each_alert() -> None:
    told = dict(re.findall(r"^\| `(Fleet\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert told.keys() == {rule["alert"] for rule in ALERTS}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in ALERTS)
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def exported() -> set[str]:
    maker = DecisionMaker(["fleet"], rules=PlacementAlone())
    metrics = FleetMetrics(lambda: FleetState(maker, leading=True, writes_under_way=0, now=Steady(0.0)))
    names = {"up"}
    for family in metrics.registry.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names.update(family.name + suffix for suffix in suffixes)
    return names


@pytest.mark.parametrize("expression", [*dict.fromkeys(expressions())])
def test_what_is_asked_for_is_exported(expression: str) -> None:
    query = expression.replace("$__rate_interval", "5m").replace("$job", ".*")
    promql_parser.parse(query)
    asked = set(re.findall(r"\b(?:policy_scheduler_\w+|up)(?=[{\[) ]|$)", query))
    assert asked
    assert asked <= exported()


def test_each_metric_has_a_panel() -> None:
    shown = " ".join(expressions())
    families = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in exported()}
    assert {name for name in families if name not in shown} == set()


def test_panels_have_their_own_places() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_what_is_scraped_is_what_is_deployed() -> None:
    monitor = yaml.safe_load((MONITORING / "pod-monitor.yaml").read_text())["spec"]
    (expression,) = monitor["selector"]["matchExpressions"]
    labels = set()
    for path in (DEPLOY / "fleet").glob("*/deployment.yaml"):
        (deployment,) = [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "Deployment"]
        labels.add(deployment["spec"]["template"]["metadata"]["labels"][monitor["jobLabel"]])
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert monitor["podMetricsEndpoints"][0]["port"] in {each["name"] for each in container["ports"]}
    assert set(expression["values"]) == labels
