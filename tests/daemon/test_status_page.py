"""The status page: the right figures in a real browser, quick with many nodes, and safe with any names."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from kube_policy_scheduler.adapters.http.health_checks import HealthChecks
from kube_policy_scheduler.adapters.http.port import HttpPort
from kube_policy_scheduler.adapters.http.server import HttpServer, Routes, Scrapes
from kube_policy_scheduler.daemon.observing.live_metrics import ShardState
from kube_policy_scheduler.daemon.serving.status_page import StatusPage, rendered
from kube_policy_scheduler.daemon.serving.status_snapshot import MOST_PENDING, Snapshot, take_snapshot
from kube_policy_scheduler.daemon.serving.status_words import put_into_words
from kube_policy_scheduler.framework.groups.state import GangState
from kube_policy_scheduler.pages.heat_map import Nodes, Use, heat_map
from kube_policy_scheduler.pages.status import content_security_policy, render
from kube_policy_scheduler.times import ago, duration
from tests.daemon.deciding_stage import NOW
from tests.daemon.status_stage import Scene
from tests.fakes.browser import Browser
from tests.fakes.browser import browser as browser
from tests.patience import PATIENCE_SECONDS


@contextmanager
def served(scene: Scene) -> Iterator[str]:
    """Serve a scene's page as the daemon does, from a loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def take() -> Snapshot:
        return take_snapshot(scene.sources())

    page = StatusPage(take, make=rendered, stopwatch=count(step=60).__next__)  # each one is new

    async def nothing(_: web.Request) -> web.Response:
        return web.Response(text="")

    server = HttpServer(
        port=HttpPort("127.0.0.1", 0),
        checks=HealthChecks(),
        scrapes=Scrapes(CollectorRegistry()),
        routes=Routes({"/status": page.show, "/debug/decisions": nothing, "/debug/state": nothing}),
    )
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(PATIENCE_SECONDS)
        yield f"{server.url}/status"
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(PATIENCE_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "light"), (1280, "dark"), (375, "dark")])
def test_the_page_is_whole_on_every_screen(browser: Browser, width: int, scheme: str) -> None:
    with served(Scene(pending=9)) as url, browser.open(url, width=width, scheme=scheme) as view:  # type: ignore[arg-type]
        assert view.barriers() == []
        view.run(lambda page: page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)"))
        assert view.troubles == []
        assert view.requests == []
        assert view.overflow_px() == 0


def test_the_page_shows_the_current_state(browser: Browser) -> None:
    with served(Scene(pending=9)) as url, browser.open(url) as view:
        assert view.text("h1") == "policy-scheduler"
        assert view.text(".verdict") == (
            "The newest policies were rejected: the previous policies stay active.\n\n"
            "Degraded metrics: 1 of 2.\n\nNo node fits 7 pods."
        )
        assert dict(reversed(text.split("\n", 1)) for text in view.texts(".figures li"))["pods wait"] == "9"
        cards = view.texts(".card")
        assert cards[0].startswith("5 pods unschedulable\n\nInsufficient cpu on 11 of 12 nodes")
        assert cards[1].startswith("2 pods held\n\nlater <script>alert(1)</script>")
        assert len(view.texts(".map")) == 3
        assert "node_load1" in view.text("#metrics + .scroll")
        assert "never answered" in view.text("#metrics + .scroll")
        assert "error[P0101]: unknown name `laod`" in view.text("pre")
        assert "held by this replica" in view.text("dl")


def test_clauses_show_their_results(browser: Browser) -> None:
    with served(Scene(pending=9)) as url, browser.open(url) as view:
        said = {text.split("\n")[1]: text.split("\n")[2:] for text in view.texts(".source li") if text.count("\n") > 1}
    (busy,) = said['filter load ?? 1 < 0.9 as not_too_busy else "node is <b>busy</b>"']
    assert re.fullmatch(r"rejected 13 of 156 nodes \(8\.3 %\), [\d.]+ ms", busy)
    (calm,) = said["score 10 * (1 - load) as calm"]
    assert re.fullmatch(r"[\d.]+ to [\d.]+, [\d.]+ ms", calm)
    assert said['hold if pod.label.later else "later <script>alert(1)</script>"'] == ["holds 2 pods now"]


def test_a_decision_explains_itself(browser: Browser) -> None:
    with served(Scene()) as url, browser.open(url) as view:
        view.run(lambda page: page.locator(".decision summary").first.click())
        told = view.text(".decision[open]")
    assert re.search(r"shop/web-7 → n\d+", told)
    assert re.search(r"nodes fit; (it leads n\d+ by [\d.]+: |\d+ have the best total)", told)
    assert "calm" in told
    assert "total" in told
    assert "missing on 1 node" in told


def test_a_node_under_the_pointer_is_named(browser: Browser) -> None:
    scene = Scene()
    with served(scene) as url, browser.open(url) as view:
        view.run(lambda page: page.locator(".map svg").first.hover(position={"x": 4, "y": 4}))
        assert re.fullmatch(r"n0: CPU \d+ %, Memory 0 %, Pods \d+ %", view.text("#pointed"))


def test_the_page_renews_itself_and_keeps_open_what_was_opened(browser: Browser) -> None:
    scene = Scene(decided=1)
    with served(scene) as url, browser.open(url) as view:
        view.run(lambda page: page.locator("#fullest summary").click())
        scene.stage.decide(scene.stage.pod("newcomer", app="web"), scene.log)
        view.run(lambda page: page.evaluate("renew()"))
        assert "newcomer" in view.text(".decision")
        assert view.run(lambda page: page.locator("#fullest").get_attribute("open")) is not None
        assert view.troubles == []


def test_a_page_without_its_scheduler_reports_it(browser: Browser) -> None:
    with served(Scene()) as url, browser.open(url) as view:
        view.run(lambda page: page.route("**/*", lambda route: route.abort()))
        view.run(lambda page: page.evaluate("renew()"))
        view.run(lambda page: page.wait_for_selector("#stale:not([hidden])"))


def test_nothing_that_a_name_or_reason_says_is_taken_for_html() -> None:
    html = rendered(Scene(pending=9).snapshot()).body.decode()
    assert "<b>busy" not in html
    assert html.count("<script") == 2
    assert "&lt;script&gt;alert(1)" in html


def test_the_browser_may_run_nothing_else() -> None:
    page = rendered(Scene().snapshot())
    policy = page.content_security_policy
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert re.findall(r' style="| on\w+="|https?://(?!10\.0\.0\.1)', page.body.decode()) == []
    assert content_security_policy("<p>") == policy_without_code()


def policy_without_code() -> str:
    return (
        "default-src 'none'; style-src 'none'; script-src 'none'; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@pytest.mark.long
def test_many_nodes_and_pods_take_the_scheduler_little_time() -> None:
    """A guard against blow-ups: 4 ms for the snapshot and 40 ms in the thread, on a quiet machine."""
    scene = Scene(nodes=5000, pending=2000)
    began = time.process_time()
    taken = take_snapshot(scene.sources())
    between = time.process_time()
    page = rendered(taken)
    assert between - began < 0.5
    assert time.process_time() - between < 5.0
    assert len(page.body) < 1_000_000
    assert json.loads(re.findall(r'id="data">(.*?)</script>', page.body.decode())[0])["names"][0] == "n0"


def test_very_many_pods_are_sampled_and_the_numbers_are_scaled() -> None:
    scene = Scene()
    for number in range(25_001):
        scene.queue.add(scene.stage.pod(f"x-{number}"), NOW)
    taken = take_snapshot(scene.sources())
    assert len(taken.pending) <= MOST_PENDING
    html = rendered(taken).body.decode()
    assert "<strong>25,001</strong>" in html
    assert "25,001 pods" in html, "each stands for ten"
    assert "2,500 pods were looked at" in html
    assert "were looked at" not in rendered(Scene(pending=8).snapshot()).body.decode()


def test_a_pod_that_took_too_long_is_said_to_wait_behind_all_others() -> None:
    scene = Scene(pending=0)
    pod = scene.stage.pod("evil", app="web")
    scene.queue.add(pod, NOW)
    for _ in range(2):
        queued = scene.queue.pop(NOW)
        assert queued is not None
        scene.queue.took_too_long(queued, NOW)
        scene.queue.activate(queued, NOW)

    assert "wait behind all others: deciding them took too long" in rendered(scene.snapshot()).body.decode()


def test_gangs_are_listed_in_the_order_of_their_timeouts() -> None:
    def gang(name: str, until: float | None = None, placed: int = 1) -> GangState:
        state = GangState(name, "PodGroup train", size=4, placed=placed, holding=placed, pending=1, until=until)
        return msgspec.structs.replace(state, domain="rack=r1") if name == "ml/b" else state

    scene = Scene(pending=2, gangs=(gang("ml/c", placed=3), gang("ml/b", NOW + 200), gang("ml/a", NOW + 9)))
    for queued in scene.queue:
        queued.groups = ("any",)
    html = rendered(scene.snapshot()).body.decode()
    cards = re.findall(r"<h3>(ml/.)</h3>(.*?)</section>", html, re.DOTALL)
    assert [name for name, _ in cards] == ["ml/a", "ml/b", "ml/c"]
    assert " ".join(re.sub(r"<[^>]*>", " ", cards[0][1]).split()) == (
        "1 of 4 members have a node, held for 9 s more 1 pending, 2 missing PodGroup train"
    )
    assert "1 of 4 members have a node in rack=r1, held" in " ".join(re.sub(r"<[^>]*>", " ", cards[1][1]).split())


async def test_concurrent_requests_share_one_page_and_do_not_block_the_loop() -> None:
    scene = Scene(nodes=2000, pending=200)
    taken = 0

    async def counted() -> object:
        nonlocal taken
        taken += 1
        return take_snapshot(scene.sources())

    page = StatusPage(counted, make=rendered, stopwatch=lambda: 0.0)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    request = type("Request", (), {"headers": {"Accept-Encoding": "gzip"}})()
    answers = await asyncio.gather(*(page.show(request) for _ in range(20)))
    turning.cancel()
    assert taken == 1
    assert {answer.headers["Content-Encoding"] for answer in answers} == {"gzip"}
    assert turns > 3


async def test_a_page_that_failed_is_rendered_again() -> None:
    scene, broken = Scene(), True

    async def sometimes() -> object:
        return None if broken else take_snapshot(scene.sources())

    page = StatusPage(sometimes, make=rendered, stopwatch=lambda: 0.0)
    request = type("Request", (), {"headers": {}})()
    with pytest.raises(AttributeError):
        await page.show(request)
    broken = False
    assert (await page.show(request)).status == 200


@pytest.mark.parametrize(
    ("change", "tone", "said"),
    [
        ({"leading": False, "leader": "other_1"}, "quiet", "This replica is on standby: another replica leads."),
        ({"reachable": False}, "bad", "The API server cannot be reached: https://10.0.0.1:443."),
        ({"problems": ("no policies have been read yet",)}, "bad", "No policies have been read yet."),
        ({}, "good", "All is well."),
    ],
)
def test_one_sentence_summarizes_the_state(change: dict[str, object], tone: str, said: str) -> None:
    taken = Scene().snapshot()
    good = {"": taken.reloads[1]}
    calm = msgspec.structs.replace(
        taken, newest=good, metrics=(), replica=msgspec.structs.replace(taken.replica, **change)
    )  # type: ignore[arg-type]
    verdict = put_into_words(calm).verdict
    assert (verdict.tone, verdict.text) == (tone, said)


def shard(**change: Any) -> ShardState:
    known: dict[str, Any] = {"identity": "a_1", "members": ("a_1", "b_2", "c_3"), "takes_part": True, "waits_for": ()}
    return ShardState(**{**known, "nodes": 7, "pods": 2, "passed_on": 1_200, "given_back": 3, "failed": 1, **change})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"elects": False}, ("lease", "no leader election: this replica always schedules")),
        ({"leading": False, "leader": "other_1"}, ("lease", "held by other_1")),
        ({"leading": False, "leader": ""}, ("lease", "not seen yet")),
        ({"kernels": "in use: numba 0.62.1"}, ("compiled kernels", "in use: numba 0.62.1")),
        ({"shard": shard()}, ("shares the work with", "b_2, c_3")),
        ({"shard": shard(members=("a_1",))}, ("shares the work with", "nobody")),
        ({"shard": shard(members=())}, ("shares the work with", "not known yet")),
        ({"shard": shard()}, ("its own nodes", "7 of 12")),
        ({"shard": shard(takes_part=False, waits_for=("c_3",))}, ("waits for a hand-over by", "c_3")),
        ({"shard": shard()}, ("pods that changed hands", "1,200 passed on, 3 given back, 1 failed")),
    ],
)
def test_the_page_shows_which_replica_decides(change: dict[str, object], said: tuple[str, str]) -> None:
    taken = Scene().snapshot()
    changed = msgspec.structs.replace(taken, replica=msgspec.structs.replace(taken.replica, **change))  # type: ignore[arg-type]
    assert said in put_into_words(changed).replica


def test_a_cluster_without_anything_has_a_page() -> None:
    scene = Scene(nodes=1, decided=0)
    scene.stage.cluster.remove_node("n0")
    scene.policy_status.policies, scene.policy_status.hash = None, ""
    scene.policy_status.reloads.clear()
    html = render(put_into_words(scene.snapshot())).html
    assert "There are no nodes." in html
    assert "There are no active policies: no pods are scheduled." in html


def test_cells_have_their_place_and_their_colour() -> None:
    shares = [0.0, 0.55, 1.0, 1.3, float("nan"), 0.95]
    nodes = Nodes([f"n{at}" for at in range(6)], [], unusable=[5])
    found = heat_map(Use("CPU", shares, "", 0.5), nodes, columns=4)
    assert (found.width, found.height) == (39, 19)
    assert {cells.level: cells.path for cells in found.cells} == {
        "0": "M0 0h9v9h-9z",
        "5": "M10 0h9v9h-9z",
        "10": "M20 0h9v9h-9zM30 0h9v9h-9z",
        "none": "M0 10h9v9h-9z",
        "off": "M10 10h9v9h-9z",
    }


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.00042, "0.42 ms"),
        (0.0, "0 ms"),
        (0.05, "50 ms"),
        (0.25, "0.2 s"),
        (14.9, "14 s"),
        (60, "1 min"),
        (75, "1 min 15 s"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_times_are_short(seconds: float, said: str) -> None:
    assert duration(seconds) == said
    assert ago(0.2) == "now"
    assert ago(14) == "14 s ago"


def test_the_pods_of_one_namespace_hide_no_others() -> None:
    scene = Scene()
    for number in range(2 * MOST_PENDING):
        scene.queue.add(scene.stage.pod(f"evil-{number}"), NOW)
    for name in ("good", "fine"):
        scene.queue.add(msgspec.structs.replace(scene.stage.pod(name), namespace=name), NOW)
    shown = {pod.key: pod.stands_for for pod in take_snapshot(scene.sources()).pending}
    assert len(shown) == MOST_PENDING
    assert shown["good/good"] == shown["fine/fine"] == 1
    assert sum(shown.values()) == pytest.approx(2 * MOST_PENDING + 2)
    assert {"good/good", "fine/fine"} < set(list(shown)[:3]), "gangs are taken from the first pods"
