"""The page of `policyctl simulate`, opened in a browser: the figures of the JSON, a chart for each measure."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cli.commands.simulate import difference_rows, difference_title
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.trace import PodKind, TraceNode, TracePod
from kube_policy_scheduler.pages.simulation import simulation_page
from kube_policy_scheduler.tooling.simulation.autoscaling import parse_autoscaling
from kube_policy_scheduler.tooling.simulation.results import Result, data, summary
from kube_policy_scheduler.tooling.simulation.run import run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from kube_policy_scheduler.tooling.simulation.trace import Experiment
from kube_policy_scheduler.tooling.tuning.judging import compared_runs
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


def test_charts_fit_on_a_phone_and_their_texts_can_be_read(browser: Browser, queued: str) -> None:
    with browser.open(queued, width=400) as view:
        too_wide = "all => all.filter(e => e.scrollWidth > e.clientWidth).length"
        wider = view.run(lambda page: page.eval_on_selector_all("figure.chart", too_wide))
        heights = view.run(
            lambda page: page.eval_on_selector_all(
                "figure.chart svg text", "all => all.map(e => Math.max(e.getBoundingClientRect().height,"
                " e.getBoundingClientRect().width))"
            )
        )  # fmt: skip
    assert wider == 0
    assert min(heights) >= 8.0


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
    assert "gpu at 100 % requested" in text
    assert "gpu requested, % of capacity" in text
    assert "gpu: free capacity that no pod can use" in text
    assert "Pods dropped" in text


def test_two_policies_side_by_side_with_their_differences_and_the_values_as_tables(browser: Browser) -> None:
    shapes = Source("s.yaml", "shapes:\n- {name: big, node: {cpu: 8, mem: 64Gi}, max: 3, delay: 1min, price: 0.5}\n")
    arrivals = [Arrival(10.0 * number, f"p{number}", pod(cpu="2"), 600) for number in range(12)]
    scenario = Scenario([node("a")], arrivals, autoscaling=parse_autoscaling(shapes, things=[]))
    queues = (
        'queue all for pods where pod.namespace == "default" min cpu 2\norder by queue.share\nscore most_allocated()'
    )
    who = [PolicyVariant("kubernetes", compared_by=variant(queues).tree), variant(queues)]
    results = [
        Result(one.name, tuple(run(scenario, one, seed=seed, stopwatch=lambda: 0.0) for seed in range(2)))
        for one in who
    ]
    compared = compared_runs(results[0].runs, results[1].runs, scenario)
    found = data(results, scenario) | {"against": "kubernetes"}
    rows = difference_rows(compared)
    title = difference_title("test", results[0])
    with browser.open(simulation_page(found, summary(results, scenario), [(title, rows)])) as view:
        assert view.troubles == []
        assert view.requests == []
        text = view.text()
        tables = view.run(lambda page: page.evaluate("document.querySelectorAll('details.values table').length"))
        charts = view.run(lambda page: page.evaluate("document.querySelectorAll('figure.chart').length"))
    titles = ("Nodes", "Price of the nodes", "Pods bound", "Pods pending", "cpu of queue all", "nodes, most")
    for wanted in ("test against kubernetes, 2 paired runs", *titles):
        assert wanted in text
    assert 0 < tables <= charts
