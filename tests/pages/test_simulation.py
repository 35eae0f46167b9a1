"""The page of `policyctl simulate`, opened in a browser: the figures of the JSON, a chart for each measure."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.documents.trace import PodKind, TraceNode, TracePod
from kube_policy_scheduler.pages.simulation import simulation_page
from kube_policy_scheduler.tooling.simulation.results import Result, data, summary
from kube_policy_scheduler.tooling.simulation.run import run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from kube_policy_scheduler.tooling.simulation.trace import Experiment
from tests.fakes.browser import Browser
from tests.tooling.simulation.scenarios import node, pod, variant


@pytest.fixture(scope="module")
def queued() -> str:
    arrivals = [Arrival(10.0 * number, f"p{number}", pod(cpu="1"), 600) for number in range(12)]
    scenario = Scenario([node("a"), node("b")], [*arrivals, Arrival(0, "huge", pod(cpu="40"))])
    who = [PolicyVariant("kubernetes"), variant("score most_allocated()")]
    results = [Result(one.name, (run(scenario, one, seed=0, stopwatch=lambda: 0.0),)) for one in who]
    return simulation_page(data(results, scenario), summary(results, scenario))


@pytest.fixture(scope="module")
def dropped() -> str:
    nodes = [TraceNode(f"n{number}", 32000, 65536, 4, "T4") for number in range(3)]
    kinds = [PodKind(1000, 1024, 1, 500, ()), PodKind(1000, 1024, 2, 1000, ())]
    experiment = Experiment(nodes, [TracePod("p", kind, None, None) for kind in kinds], until=1.3)
    runs = tuple(
        run(experiment.scenario(seed), PolicyVariant("<b>kubernetes</b>"), seed=seed, stopwatch=lambda: 0.0)
        for seed in range(3)
    )
    results = [Result("<b>kubernetes</b>", runs)]
    return simulation_page(data(results, experiment.scenario(0)), summary(results, experiment.scenario(0)))


def test_pods_that_wait_are_shown_over_time(browser: Browser, queued: str) -> None:
    with browser.open(queued) as view:
        assert view.troubles == []
        assert view.requests == []
        text = view.text()
    assert "13 pods" in text
    for title in ("cpu in use", "memory in use", "Spread of cpu over the nodes", "Pods pending"):
        assert title in text
    assert "NodeResourcesFit" in text
    assert "time, minutes" in text


def test_the_experiment_is_shown_against_what_was_asked_for(browser: Browser, dropped: str) -> None:
    with browser.open(dropped) as view:
        assert view.troubles == []
        text = view.text()
    assert "<b>kubernetes</b>" in text, "names are texts"
    assert "gpu at 100 % asked for" in text
    assert "gpu asked for, % of what there is" in text
    assert "gpu: free room that is of no use" in text
    assert "Pods dropped" in text
