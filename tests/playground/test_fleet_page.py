"""The page with a policy of workloads, in a browser with the real server: the clusters as a table, and its edits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from kube_policy_scheduler.cli.commands.playground import ClusterSources, FileDoors
from kube_policy_scheduler.cli.given import Given
from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.playground.opening import FLEET_POLICY_NAME, POLICY_NAME, examples, start, start_policy
from kube_policy_scheduler.playground.session import Session
from kube_policy_scheduler.playground.sharing import read_link
from kube_policy_scheduler.tooling.tester.run import State
from tests.fakes.browser import Browser, View, browser
from tests.playground.serving import example, serving
from tests.playground.test_page import EXPECTED, shows, write

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser"]

POLICY = next(files for files in examples().values() if FLEET_POLICY_NAME in files)
DECIDED = "Policy fleet: berlin 10, iowa 2."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FLEET_POLICY_NAME).write_text(POLICY[FLEET_POLICY_NAME])
    return tmp_path


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    sources = ClusterSources(Given(now=0.0), live=False)
    doors = FileDoors(folder, {FLEET_POLICY_NAME: folder / FLEET_POLICY_NAME}, sources)
    with serving(Session(POLICY, start().cluster), doors) as url:
        yield url


@pytest.fixture
def view(address: str, browser: Browser) -> Iterator[View]:
    """The page, once it has a decision; an edit that is refused is a word on the console, and nothing else is."""
    with browser.open(address, width=1280) as opened:
        shows(opened, "#verdict", DECIDED)
        yield opened
        assert [trouble for trouble in opened.troubles if "400" not in trouble] == []


def fill(view: View, label: str, text: str) -> None:
    def act(page: Page) -> None:
        cell = page.get_by_label(label, exact=True)
        cell.fill(text)
        cell.press("Enter")

    view.run(act)


def fleet(view: View) -> str:
    return view.run(lambda page: page.locator("#fleet-yaml").input_value())


def test_the_table_says_what_becomes_of_each_cluster(view: View) -> None:
    hidden: Any = view.run(lambda page: [page.locator(f"#{name}").is_visible() for name in ("nodes", "pod", "time")])
    assert hidden == [False] * 3
    assert view.text("#cluster") == "5 clusters"
    rows = view.texts("#cluster-rows tr")
    assert [row.split()[:5] for row in rows[:1]] == [["berlin", "10", "4", "6", "(summary)"]]
    assert "rejected by cluster.ready" in rows[-1]
    shows(view, "#reason", "by policy fleet")
    assert view.run(lambda page: page.locator("main.stale").count()) == 0


def test_edits_of_the_table_decide_again_and_stay_in_the_text(view: View) -> None:
    fill(view, "provider of berlin", "aws")
    shows(view, "#cluster-rows tr", "-0.03")
    view.run(lambda page: page.get_by_label("oregon is ready").check())
    shows(view, "#verdict", "oregon")
    assert "name: oregon, region: us, zone: us-2, provider: aws, cpu: 24, mem: 96Gi, price: 0.02, ready: true" in fleet(
        view
    )
    assert "name: berlin, region: eu, zone: eu-1, provider: aws" in fleet(view)
    fill(view, "labels of berlin", "tier")
    shows(view, "#cluster-error", "expected labels such as")
    fill(view, "cpu of berlin", "lots")
    shows(view, "#fleet-error", "line 10: ")
    shows(view, "#verdict", "the table shows the last fleet without errors")
    assert view.run(lambda page: page.locator("main.stale").count()) == 1
    assert view.text("#cluster-error") == ""
    fill(view, "cpu of berlin", "8")
    shows(view, "#verdict", "Policy fleet:")
    assert view.text("#fleet-error") == ""


def test_the_workload_has_fields_that_decide_again_and_stay_in_the_text(view: View) -> None:
    values = view.run(
        lambda page: [
            page.locator(f"#workload-fields input[name={key}]").input_value()
            for key in ("kind", "name", "replicas", "cpu", "mem", "labels")
        ]
    )
    assert values == ["", "shop", "12", "1", "2Gi", "tier=prod"]
    fill(view, "replicas", "8")
    shows(view, "#verdict", "Policy fleet: berlin 8.")
    fill(view, "namespace", "shop")
    shows(view, "#reason", "shop/shop")
    assert "replicas: 8" in fleet(view)
    assert "namespace: shop" in fleet(view)
    fill(view, "labels", "tier")
    shows(view, "#workload-error", "expected labels such as")
    fill(view, "labels", "tier=prod")
    eventually_empty(view, "#workload-error")


def eventually_empty(view: View, selector: str) -> None:
    view.run(
        lambda page: page.wait_for_function("(selector) => !document.querySelector(selector).textContent", arg=selector)
    )


def test_a_score_says_what_each_clause_adds(view: View) -> None:
    text = (
        'for workloads where true\nscore 100 if cluster.provider == "own" as ours\nscore -(cluster.price ?? 9) as price'
    )
    view.run(lambda page: write(page, f"{text}\ndivide best first"))
    shows(view, "#cluster-rows tr:first-child .points", "ours: 100")
    shows(view, "#cluster-rows tr:first-child .points", "price: -0.03")


def test_the_text_and_the_policy_decide_again(view: View) -> None:
    text = fleet(view).replace("replicas: 12", "replicas: 500")
    view.run(lambda page: page.locator("#fleet-yaml").fill(text))
    shows(view, "#verdict", "replicas")
    assert view.run(lambda page: page.locator("#verdict").get_attribute("class")) == "verdict warn"
    view.run(lambda page: page.locator("#fleet-yaml").fill(text.replace("500", "12")))
    view.run(lambda page: write(page, "for workloads where true\nfilter cluster.redy"))
    shows(view, "#verdict", "the table shows the last policy without errors")
    view.run(lambda page: write(page, "for workloads where true\nfilter cluster.ready\ndivide evenly"))
    shows(view, "#verdict", "berlin 4, dublin 3")


def test_of_very_many_clusters_those_with_replicas_are_shown(view: View) -> None:
    others = "".join(f"- {{name: c{number}, cpu: 1, labels: {{tier: prod}}}}\n" for number in range(300))
    view.run(lambda page: page.locator("#fleet-yaml").fill(fleet_text(others)))
    shows(view, "#clusters-left", "and 101 more clusters")
    assert view.run(lambda page: page.locator("#cluster-rows tr").count()) == 200
    assert view.texts("#cluster-rows tr.chosen th") == ["last"]


def fleet_text(others: str) -> str:
    return f"workload: {{replicas: 2, cpu: 1}}\nclusters:\n{others}- {{name: last, provider: own, cpu: 4}}\n"


def test_a_comparison_shows_what_each_cluster_gets_by_both(view: View) -> None:
    view.run(lambda page: page.locator("#compare-button").click())
    view.run(lambda page: write(page, "for workloads where true\nfilter cluster.ready\ndivide evenly"))
    shows(view, "#verdict", "berlin 4")  # of A: B shows the same before and after
    shows(view, "#verdict", "B: Policy fleet: berlin 10, iowa 2.")
    assert view.texts("#cluster-rows tr:first-child td.number")[:2] == ["4", "10"]


def test_a_decision_is_saved_as_a_test_and_shared(view: View, folder: Path) -> None:
    view.run(lambda page: page.locator("#test-button").click())
    view.run(lambda page: page.locator("#test-do").click())
    shows(view, "#test-text", "clusters:")
    results = list(load_suite(folder / "fleet.test.yaml").run().results())
    assert [each.state for each in results] == [State.PASSED]
    view.run(lambda page: page.keyboard.press("Escape"))
    view.run(lambda page: page.locator("#share-button").click())
    shows(view, "#share-note", "The receiver opens")
    shared = read_link(view.run(lambda page: page.locator("#share-link").input_value()))
    assert (shared.files, shared.fleet) == (POLICY, fleet(view))


def test_the_example_of_a_fleet_can_be_opened_and_left(browser: Browser) -> None:
    with serving(example()) as url, browser.open(url, width=1280) as view:
        shows(view, "#verdict", EXPECTED)
        view.run(lambda page: page.locator("#open-button").click())
        view.run(
            lambda page: page.locator("#open-example").select_option(label="a workload on the clusters of a fleet")
        )
        view.run(lambda page: page.locator("#open-do").click())
        shows(view, "#verdict", DECIDED)
        view.run(lambda page: write(page, start_policy()))
        shows(view, "#verdict", EXPECTED)
        assert view.run(lambda page: page.locator("#map-mine").is_visible())
        assert view.troubles == []


def test_the_file_that_is_shown_decides_between_pods_and_workloads(browser: Browser) -> None:
    files = {POLICY_NAME: start_policy(), **POLICY}
    with serving(Session(files, start().cluster)) as url, browser.open(url, width=1280) as view:
        shows(view, "#verdict", EXPECTED)
        view.run(lambda page: page.get_by_role("button", name=FLEET_POLICY_NAME).click())
        shows(view, "#verdict", DECIDED)
        view.run(lambda page: page.get_by_role("button", name=POLICY_NAME).click())
        shows(view, "#verdict", EXPECTED)
        assert view.troubles == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_the_table_keeps_nobody_out_and_fits_a_phone(
    address: str, browser: Browser, width: int, scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    with browser.open(address, width=width, scheme=scheme) as view:
        shows(view, "#verdict", DECIDED)
        shows(view, "#reason", "by policy fleet")
        assert view.overflow_px() == 0
        assert view.barriers() == []
        fill(view, "cpu of berlin", "lots")
        shows(view, "#fleet-error", "line 10: ")
        assert view.barriers() == []
