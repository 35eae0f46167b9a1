"""The page of `policyctl simulate --fleet`: what the JSON says is on it, and names stay texts."""

from __future__ import annotations

from html import unescape

from kube_policy_scheduler.pages.fleet_simulation import fleet_simulation_page
from kube_policy_scheduler.tooling.fleet_simulation.results import (
    clusters_table,
    data,
    differences_table,
    measures_table,
    notes,
    summary,
)
from tests.pages.test_fleet_impact import texts
from tests.tooling.fleet_simulation.scenarios import BACK, fleet, simulated

LOSS = "events: [{at: 10min, lose: {region: eu}, for: 30min}]"


def page_of(workloads: str) -> str:
    scenario = fleet(workloads=workloads, events=LOSS)
    runs = [simulated(scenario, None), simulated(scenario, BACK)]
    tables = [("Where replicas are", clusters_table(runs)), ("What it comes to", measures_table(runs))]
    return fleet_simulation_page(
        data(runs, scenario, against="karmada"),
        summary(runs, scenario),
        tables=[*tables, *differences_table(runs)],
        notes=list(notes(runs)),
    )


def test_the_page_has_the_timeline_the_tables_and_the_charts() -> None:
    shown = texts(page_of("workloads: [{name: web, replicas: 8, cpu: 1}]"))
    for text in (
        "3 clusters, 1 workload, 2 events",
        "10min lost region eu berlin, frankfurt",
        "15min evicted default/web 6 replicas from berlin",
        "moved default/web 2 from iowa to berlin",
        "replicas evicted",
        "Replicas that do not run",
        "Replicas that run: policy",
        "Price",
    ):
        assert text in shown


def test_names_are_texts() -> None:
    page = page_of("workloads: [{name: '<script>x</script>', replicas: 8, cpu: 1}]")
    assert "<script>x" not in page
    assert "default/<script>x</script>" in unescape(page)
