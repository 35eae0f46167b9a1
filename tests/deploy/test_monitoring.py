"""Alerts and dashboards: promtool accepts and tests the rules; all queried metrics are exported."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry

from kube_policy_scheduler.daemon.fleet.fleet_metrics import FleetMetrics, FleetState
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, PlacementAlone
from kube_policy_scheduler.times import Steady
from tests.deploy.exported import registry
from tests.deploy.manifests import DEPLOY

OTHERS = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
"""Prometheus' own, and those of every Python process."""
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
"""Of the samples of a metric, by its type."""


class Monitoring(NamedTuple):
    """How one daemon is watched."""

    folder: Path
    """With its rules and its dashboard."""
    tests: str
    """File of this folder: cases of its alerts, for promtool."""
    registry: Callable[[], CollectorRegistry]

    def rules(self) -> Any:
        return yaml.safe_load((self.folder / "prometheus-rule.yaml").read_text())["spec"]

    def alerts(self) -> list[Any]:
        return [rule for group in self.rules()["groups"] for rule in group["rules"]]

    def dashboard(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "dashboard.json").read_text())
        return found

    def expressions(self) -> Iterator[str]:
        yield from (rule["expr"] for rule in self.alerts())
        for panel in self.dashboard()["panels"]:
            yield from (target["expr"] for target in panel.get("targets", ()))
        yield from (each["expr"] for each in self.dashboard()["annotations"]["list"] if "expr" in each)

    def exported(self) -> set[str]:
        """Every name that a scrape can show."""
        names = set()
        for family in self.registry().collect():
            names.add(family.name)
            names.update(family.name + suffix for suffix in SUFFIXES.get(family.type, ()))
        return names


def fleet_registry() -> CollectorRegistry:
    maker = DecisionMaker(["fleet"], rules=PlacementAlone())
    return FleetMetrics(lambda: FleetState(maker, leading=True, writes_under_way=0, now=Steady(0.0))).registry


SCHEDULER = Monitoring(DEPLOY / "components/monitoring", "alerts.test.yaml", registry)
FLEET = Monitoring(DEPLOY / "fleet/monitoring", "fleet-alerts.test.yaml", fleet_registry)
BOTH = {"scheduler": SCHEDULER, "fleet": FLEET}


@pytest.fixture(params=BOTH)
def watched(request: pytest.FixtureRequest) -> Monitoring:
    return BOTH[request.param]


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("arguments", ["check rules rules.yaml", "test rules {tests}"])
def test_promtool_accepts_and_tests_the_rules(watched: Monitoring, tmp_path: Path, arguments: str) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(watched.rules()))
    shutil.copy(Path(__file__).with_name(watched.tests), tmp_path)
    command = ["promtool", *arguments.format(tests=watched.tests).split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_both_ways(watched: Monitoring) -> None:
    fired, silent = set(), set()
    for test in yaml.safe_load(Path(__file__).with_name(watched.tests).read_text())["tests"]:
        for case in test["alert_rule_test"]:
            (fired if case.get("exp_alerts") else silent).add(case["alertname"])
    names = {rule["alert"] for rule in watched.alerts()}
    assert (fired, silent) == (names, names)


@pytest.mark.parametrize(
    ("name", "expression"),
    [(name, query) for name, each in BOTH.items() for query in dict.fromkeys(each.expressions())],
)
def test_what_is_asked_for_is_exported(name: str, expression: str) -> None:
    query = expression.replace("$__rate_interval", "5m").replace("$job", ".*")
    promql_parser.parse(query)
    asked = set(
        re.findall(r"\b(?:scheduler|policy_scheduler|leader_election|rest_client|process|up)\w*(?=[{\[) ]|$)", query)
    )
    asked = {name for name in asked if f'"{name}"' not in query}
    assert asked
    assert asked <= BOTH[name].exported() | OTHERS


def test_panels_have_their_own_places(watched: Monitoring) -> None:
    panels = watched.dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24, "a row of Grafana has 24 columns"


def test_each_metric_of_fleets_has_a_panel() -> None:
    shown = " ".join(FLEET.expressions())
    families = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in FLEET.exported()}
    assert {name for name in families if name not in shown} == set()


def test_the_page_on_fleets_says_what_to_do_for_each_alert() -> None:
    page = (DEPLOY / "FLEET.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(Fleet\w+)` \| (.+) \|$", page, re.MULTILINE))
    assert told.keys() == {rule["alert"] for rule in FLEET.alerts()}


def test_what_is_scraped_of_fleets_is_what_is_deployed() -> None:
    monitor = yaml.safe_load((FLEET.folder / "pod-monitor.yaml").read_text())["spec"]
    (expression,) = monitor["selector"]["matchExpressions"]
    labels = set()
    for path in (DEPLOY / "fleet").glob("*/deployment.yaml"):
        (deployment,) = [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "Deployment"]
        labels.add(deployment["spec"]["template"]["metadata"]["labels"][monitor["jobLabel"]])
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert monitor["podMetricsEndpoints"][0]["port"] in {each["name"] for each in container["ports"]}
    assert set(expression["values"]) == labels
