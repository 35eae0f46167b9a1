"""What people do with the page, from the first click to the file, in a browser and with the real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kube_policy_scheduler.cli.commands.playground import ClusterSources, FileDoors
from kube_policy_scheduler.cli.given import Given
from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.playground.opening import start, start_policy
from kube_policy_scheduler.playground.server import NoDoors
from kube_policy_scheduler.playground.session import (
    Measure,
    OpenedCluster,
    Origin,
    PodChoice,
    RequestError,
    Session,
)
from kube_policy_scheduler.playground.sharing import read_share
from kube_policy_scheduler.tooling.tester.run import State
from tests.fakes.browser import Browser, View, browser
from tests.integration.conditions import eventually
from tests.playground.serving import FILE, example, serving
from tests.playground.test_page import EXPECTED, picture, shows, write
from tests.playground.test_session import GANG, racks

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the command was started in, with the policy."""
    (tmp_path / FILE).write_text(start_policy())
    return tmp_path


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    sources = ClusterSources(Given(now=0.0), live=False)
    with serving(example(), FileDoors(folder, {FILE: folder / FILE}, sources)) as url:
        yield url


@pytest.fixture
def view(address: str, browser: Browser) -> Iterator[View]:
    """The page, once it has a verdict; a save that is refused is a word on the console, and nothing else is."""
    with browser.open(address, width=1280) as opened:
        shows(opened, "#verdict", EXPECTED)
        yield opened
        assert [trouble for trouble in opened.troubles if "412" not in trouble and "400" not in trouble] == []


def click(view: View, selector: str) -> None:
    view.run(lambda page: page.locator(selector).first.click())


def press(view: View, *keys: str) -> None:
    for key in keys:
        view.run(lambda page, key=key: page.keyboard.press(key))


def policy(view: View) -> str:
    return view.text("#mine .cm-content")


MINE = "score 7 * node.free.cpu / 1core"


def test_a_link_carries_the_policy_to_another_page(address: str, browser: Browser, view: View) -> None:
    view.run(lambda page: write(page, MINE))
    click(view, "#share-button")
    view.run(lambda page: page.locator("#share[open]").wait_for())
    link = view.run(lambda page: page.locator("#share-link").input_value())
    assert link.startswith(f"{address.partition('/#')[0]}/#share=")
    with browser.open(address) as theirs:
        shows(theirs, "#verdict", EXPECTED)
        click(theirs, "#open-button")
        theirs.run(lambda page: page.locator("#open-link").fill(link))
        click(theirs, "#open-do")
        shows(theirs, "#mine .cm-content", "score 7")
        assert theirs.troubles == []


def test_a_file_carries_policy_and_pod_to_another_page(
    address: str, browser: Browser, view: View, tmp_path: Path
) -> None:
    view.run(lambda page: write(page, MINE))
    view.run(lambda page: page.locator("#yaml").fill("{cpu: 1, labels: {app: mine}}"))
    click(view, "#share-button")
    target = tmp_path / "shared.json"

    def save(page: Page) -> None:
        with page.expect_download() as download:
            page.locator("#share-save").click()
        download.value.save_as(target)

    view.run(save)
    share = read_share(target.read_text())
    assert (share.files, share.pod.yaml) == ({FILE: MINE}, "{cpu: 1, labels: {app: mine}}")
    with browser.open(address) as theirs:
        shows(theirs, "#verdict", EXPECTED)
        click(theirs, "#open-button")
        theirs.run(lambda page: page.locator("#open-file").set_input_files(target))
        click(theirs, "#open-do")
        shows(theirs, "#mine .cm-content", "score 7")
        assert theirs.run(lambda page: page.locator("#yaml").input_value()) == "{cpu: 1, labels: {app: mine}}"


@pytest.mark.parametrize("text", ["https://example.com/#share=AAAA", "no link", "x" * 100_000])
def test_what_is_no_link_is_refused_with_a_sentence(view: View, text: str) -> None:
    click(view, "#open-button")
    view.run(lambda page: page.locator("#open-link").fill(text))
    click(view, "#open-do")
    view.run(lambda page: page.locator("#open-error:not(:empty)").wait_for())
    assert "filter node.ready" in policy(view)


def test_a_decision_becomes_a_test_that_passes(view: View, folder: Path) -> None:
    click(view, "#test-button")
    view.run(lambda page: page.locator("#test-path").fill("mine.test.yaml"))
    click(view, "#test-do")
    shows(view, "#test-text", "captured by policyctl")
    path = folder / "mine.test.yaml"
    assert path.read_text() == view.run(lambda page: page.locator("#test-text").text_content())
    result = load_suite(path, Source(str(path), path.read_text())).run().result()
    assert [case.state for case in result.cases] == [State.PASSED]
    click(view, "#test-do")
    shows(view, "#test-error", "already exists")


def test_a_policy_is_saved_unless_the_file_was_changed(view: View, folder: Path) -> None:
    view.run(lambda page: write(page, MINE))
    press(view, "Control+s")
    shows(view, "#verdict", f"Saved {FILE}")
    assert (folder / FILE).read_text() == MINE
    (folder / FILE).write_text("score 3")
    view.run(lambda page: write(page, "score 8 * node.free.cpu / 1core"))
    press(view, "Control+s")
    shows(view, "#changed-text", "was changed on disk")
    view.run(lambda page: page.wait_for_timeout(600))  # the editor takes edits of half a second for one
    assert (folder / FILE).read_text() == "score 3"
    click(view, '#changed button[value="take"]')
    shows(view, "#mine .cm-content", "score 3")
    press(view, "Control+z")  # what was written is not lost
    shows(view, "#mine .cm-content", "score 8")
    press(view, "Control+s")
    view.run(lambda page: page.locator("#save-button:disabled").wait_for())
    assert (folder / FILE).read_text().startswith("score 8")


def test_a_simulation_is_looked_through_step_by_step(view: View) -> None:
    click(view, "#simulate-button")
    view.run(lambda page: page.locator("#player").wait_for())
    assert view.text("#summary").startswith("35 pods arrived, ")
    first = view.run(picture)
    assert view.text("#moment").endswith("step 1 of 35")
    view.run(lambda page: page.locator("#when").focus())
    press(view, "End")
    assert view.text("#moment").endswith("step 35 of 35")
    assert view.run(picture) != first
    click(view, "#back")
    assert view.run(lambda page: page.locator("#when").get_attribute("aria-valuetext")) == view.text("#moment")
    press(view, "Alt+p")
    shows(view, "#play", "Pause")
    press(view, "Alt+p")
    shows(view, "#play", "Play")
    view.run(lambda page: write(page, "score node.free.cpu"))
    eventually(lambda: view.run(lambda page: page.locator("#colour").input_value()) == "total")
    shows(view, "#verdict", EXPECTED)


def test_remedies_change_the_pod_and_the_policy(view: View) -> None:
    view.run(lambda page: page.locator("#yaml").fill("{cpu: 1000}"))
    shows(view, "#remedies button", "request ")
    click(view, "#remedies button")
    shows(view, "#verdict", EXPECTED)
    assert "1000" not in view.run(lambda page: page.locator("#yaml").input_value()).replace("1000m", "")
    view.run(lambda page: write(page, "filter node.free.cpu > 1000core\nscore node.free.cpu"))
    shows(view, "#remedies button", "remove `filter")
    click(view, '#remedies button:has-text("remove")')
    shows(view, "#verdict", EXPECTED)
    assert "filter" not in policy(view)


def test_all_of_it_with_the_keyboard_alone(view: View) -> None:
    view.run(lambda page: page.locator("#mine .cm-content").focus())
    press(view, "Control+a")
    view.run(lambda page: page.keyboard.insert_text('score 30 if node.lable.disk == "ssd"'))
    shows(view, "#problems .fix", "label")
    press(view, "Control+.")
    shows(view, "#verdict", EXPECTED)
    press(view, "F6", "ArrowRight", "Enter")
    shows(view, "#node", "labels")
    pinned = view.text("#node h3")
    press(view, "Escape", "Home", "Enter")
    view.run(lambda page: page.locator("#node h3").filter(has_not_text=pinned).wait_for())
    press(view, "F6")
    press(view, "Control+a")
    view.run(lambda page: page.keyboard.insert_text("{cpu: 1000}"))
    shows(view, "#remedies button", "request ")
    press(view, "F6", "Tab")
    assert view.run(lambda page: page.evaluate("document.activeElement.closest('#remedies') !== null"))
    press(view, "Enter")
    shows(view, "#verdict", EXPECTED)
    press(view, "Alt+b")
    shows(view, "#verdict", "B: ")
    press(view, "Alt+b", "Alt+t")
    assert view.texts("#rows tr")


def test_the_racks_of_a_gang_are_groups_of_the_map(browser: Browser) -> None:
    session = Session({"a.policy": GANG.format(4)}, racks(members=8), pod=PodChoice(key="default/train-0"))
    with serving(session) as address, browser.open(address) as view:
        shows(view, "#verdict", "is chosen, of 3 nodes that fit; 3 rejected")
        assert view.run(lambda page: page.locator("#group").input_value()) == "gang"
        shows(view, "#node", "total")
        before = view.run(picture)
        view.run(lambda page: write(page, GANG.format(8)))
        shows(view, "#verdict", "rack r0 lacks 4 cpu: 16 requested by 8 pods, 12 free")
        shows(view, "#node", "Point at a node")
        assert view.run(picture) != before
        view.run(lambda page: write(page, "score node.free.cpu"))
        shows(view, "#verdict", "is chosen, of 6 nodes")
        assert view.run(lambda page: page.locator("#group").input_value()) == "none"
        assert view.troubles == []


def test_a_cluster_that_one_page_opens_is_that_of_the_others(browser: Browser, address: str, folder: Path) -> None:
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("x1", "x2", "x3")]
    (folder / "other.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    with browser.open(address) as mine, browser.open(address) as theirs:
        for page in (mine, theirs):
            shows(page, "#verdict", EXPECTED)
        click(theirs, "#open-button")
        theirs.run(lambda page: page.locator("#open-path").fill("other.json"))
        click(theirs, "#open-do")
        shows(theirs, "#cluster", "other.json: 3 nodes")
        mine.run(lambda page: page.locator("#yaml").fill("{cpu: 1}"))
        shows(mine, "#cluster", "other.json: 3 nodes")


class Away(NoDoors):
    """A live cluster that cannot be reached, until it can."""

    reachable = False

    def refresh(self) -> tuple[OpenedCluster, Measure]:
        if not self.reachable:
            raise RequestError("cannot read the cluster: connection refused")
        started = start()
        return live(), lambda queries: started.metrics.signals(queries, now=started.cluster.now)


def live() -> OpenedCluster:
    return replace(start().cluster, name="kind", origin=Origin.LIVE, taken=start().cluster.now)


def test_a_live_cluster_says_how_old_it_is_and_whether_it_can_be_reached(browser: Browser) -> None:
    doors, session = Away(), example()
    session.open(live())
    with serving(session, doors) as address, browser.open(address) as view:
        shows(view, "#verdict", EXPECTED)
        shows(view, "#age", "listed ")
        assert "ago" in view.text("#age")
        click(view, "#again")
        shows(view, "#age", "cannot read the cluster: connection refused")
        assert "not reachable for" in view.text("#age")
        view.run(lambda page: page.locator("#map-mine").click(position={"x": 10, "y": 30}))
        shows(view, "#node", "Unpin")
        pinned = view.text("#node h3")
        doors.reachable = True
        view.run(lambda page: page.locator("#follow").check())
        view.run(lambda page: page.locator("#age", has_text="not reachable").wait_for(state="detached"))
        shows(view, "#verdict", EXPECTED)
        assert view.text("#node h3") == pinned


TESTS = """policy: start.policy
nodes:
- {name: a1, zone: a, cpu: 4, mem: 16Gi, labels: {disk: ssd}}
- {name: b1, zone: b, cpu: 4, mem: 16Gi, labels: {disk: hdd}}
cases:
- name: prefers ssd
  pod: {cpu: 1, labels: {app: web}}
  expect: {node: a1}
"""


def test_tests_beside_the_policy_follow_the_draft(folder: Path, browser: Browser) -> None:
    (folder / FILE).write_text("score 10 if label disk=ssd\n")
    (folder / "start.test.yaml").write_text(TESTS)
    (folder / "broken.test.yaml").write_text("policy: start.policy\ncases: 3\n")
    (folder / "other.test.yaml").write_text(TESTS.replace("start.policy", "other.policy"))
    (folder / "other.policy").write_text("score 10 if label disk=hdd\n")
    started = start()
    session = Session({FILE: (folder / FILE).read_text()}, started.cluster)
    sources = ClusterSources(Given(now=0.0), live=False)
    with (
        serving(session, FileDoors(folder, {FILE: folder / FILE}, sources)) as url,
        browser.open(url, width=1280) as view,
    ):
        shows(view, "#tests-summary", "1 of 1 case failed")
        assert [text.split("\n")[0] for text in view.texts("#tested .tag")] == ["error", "pass"]
        shows(view, "#tested", "broken.test.yaml:2")
        assert "other.test.yaml" not in view.text("#tested"), "it names none of the policies of the page"
        (folder / "broken.test.yaml").unlink()
        view.run(lambda page: write(page, "score 10 if label disk=hdd"))
        shows(view, "#tests-summary", "1 of 1 case failed")
        shows(view, "#tested pre", "expected  a1")
        assert (folder / FILE).read_text() == "score 10 if label disk=ssd\n", "nothing was saved"
        view.run(lambda page: write(page, "score 20 if label disk=ssd"))
        shows(view, "#tests-summary", "1 case passed")


def test_without_tests_there_is_no_list_of_them(view: View) -> None:
    view.run(lambda page: page.wait_for_timeout(1000))
    assert view.run(lambda page: page.locator("#tests").is_hidden())


def test_metrics_and_the_time_can_be_edited(view: View) -> None:
    view.run(lambda page: write(page, 'score 100 - promql("cpu_usage")\nfilter hour() < 12'))
    shows(view, "#verdict", "is chosen")
    click(view, "#inputs-button")
    shows(view, "#inputs-title", "Metrics and time")
    view.run(lambda page: page.locator("#inputs-metrics").fill("cpu_usage: {a04: 1, nowhere"))
    click(view, "#inputs-do")
    shows(view, "#inputs-error", "metrics:1:")
    view.run(lambda page: page.locator("#inputs-metrics").fill("cpu_usage: {a04: 1, b02: 50}"))
    view.run(lambda page: page.locator("#inputs-now").fill("noon"))
    click(view, "#inputs-do")
    shows(view, "#inputs-error", "expected a time such as")
    view.run(lambda page: page.locator("#inputs-now").fill("2026-05-04T09:00:00Z"))
    click(view, "#inputs-do")
    shows(view, "#verdict", "a04 is chosen")
    click(view, "#inputs-button")
    assert eventually(lambda: "a04: 1" in view.run(lambda page: page.locator("#inputs-metrics").input_value()))
    view.run(lambda page: page.locator("#inputs-now").fill("2026-05-04T15:00:00Z"))
    click(view, "#inputs-do")
    shows(view, "#verdict", "0/48 nodes")
