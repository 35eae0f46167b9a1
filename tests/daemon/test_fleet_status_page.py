"""The status page of a fleet: what is waiting and why, clusters with their room, decisions; safe with any names."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.fleet import fleet_snapshot
from kube_policy_scheduler.daemon.fleet.engine import FleetDecision
from kube_policy_scheduler.daemon.fleet.fleet_records import FleetRecords
from kube_policy_scheduler.daemon.fleet.fleet_snapshot import FleetSnapshot, FleetSources, take
from kube_policy_scheduler.daemon.fleet.fleet_words import put_into_words
from kube_policy_scheduler.daemon.modes.shadow_report import ComparisonReport
from kube_policy_scheduler.daemon.observing.live_metrics import SignalRow
from kube_policy_scheduler.daemon.observing.observers import ShadowOutcome
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord, ReloadResult
from kube_policy_scheduler.daemon.serving.status_snapshot import Replica
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, PlacementAlone, Work
from kube_policy_scheduler.fleet.tallies import MemberReading
from kube_policy_scheduler.pages.fleet_status import render
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.workload_record import RecordedWorkload, WorkloadOutcome
from tests.fakes.browser import Browser
from tests.fakes.browser import browser as browser
from tests.fleet.fleets import policies
from tests.fleet.karmada.control_plane import ControlPlane

NOW = 1.8e9
EVIL = "<script>alert(1)</script>"


class Engine:
    """What the page asks of an engine."""

    def __init__(self, maker: DecisionMaker) -> None:
        self.maker = maker

    def placements(self) -> Iterable[Mapping[str, int]]:
        return ({each.name: each.replicas for each in one.spec.clusters or ()} for one in self.maker.bindings.values())


class Scene:
    """A fleet in which workloads were decided."""

    def __init__(self, *, huge: int = 3, shadow: bool = False, **replica: Any) -> None:
        self.plane = ControlPlane()
        self.plane.set_cluster("a", cpu=6, provider="own", region="eu")
        self.plane.set_cluster("b", cpu=12, provider=EVIL)
        self.maker = DecisionMaker(["fleet"], rules=PlacementAlone())
        self.plane.show_all(self.maker, 0.0)
        report = ComparisonReport(kept=10, clock=lambda: NOW, names=("default-scheduler",), things="workloads")
        self.records = FleetRecords(
            DecisionLogSettings(), replica="r", shadow=report if shadow else None, clock=lambda: NOW - 5
        )
        self.records.use_policies(policies("divide evenly"), ReloadRecord(ReloadResult.ACCEPTED, "h" * 64, 2, NOW, 0.1))
        self.replica = Replica(
            version="1.2.3", identity="host_1", started=NOW - 60, scheduler_names=("policy-scheduler",), leading=True,
            leader="host_1", elects=True, reachable=True, server="https://karmada:5443",
        )  # fmt: skip
        self.replica = msgspec.structs.replace(self.replica, **replica)
        for number in range(huge):
            self.plane.add(f"huge{number}", replicas=1200)
        self.plane.add("web", replicas=3)
        self.plane.show_all(self.maker, 0.0)
        self.decide()

    def decide(self) -> None:
        while (work := self.maker.next(Steady(0.0))) is not None:
            assert isinstance(work, Work)
            assert work.outcome is not None
            self.plane.carry_out(self.maker, work, 0.0)
            spec = work.binding.spec
            self.records.note(
                FleetDecision(
                    key=work.key,
                    generation=1,
                    workload=RecordedWorkload(
                        kind="Deployment", name=spec.resource.name, namespace="shop", replicas=spec.replicas
                    ),
                    outcome=work.outcome,
                    became=WorkloadOutcome.PLACED if work.outcome.placed else WorkloadOutcome.UNPLACED,
                    trigger="the placement changed",
                ),
                0.001,
            )

    def steps(self) -> Generator[None, None, FleetSnapshot]:
        metric = SignalRow("load", 3.0, degraded=True, series=2, missing_nodes=1, fetch_seconds=0.01)
        sources = FleetSources(
            engine=Engine(self.maker),  # type: ignore[arg-type]  # all that is asked
            records=self.records,
            replica=lambda: self.replica,
            metrics=lambda: [metric],
            has_policies=True,
            clock=lambda: NOW,
            steady=lambda: 40.0,
        )
        return take(sources)

    def taken(self, meanwhile: Callable[[], object] = lambda: None) -> FleetSnapshot:
        """Return what the page shows. meanwhile: happens between two steps."""
        steps = self.steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: FleetSnapshot = end.value
                return found
            meanwhile()


def text_of(scene: Scene) -> str:
    html = render(put_into_words(scene.taken())).html
    html = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_workloads_that_wait_are_shown_by_reason() -> None:
    said = text_of(Scene())
    assert "3 workloads unplaced Unschedulable: " in said
    assert "Clusters available replicas 18 are not enough to schedule." in said
    assert "the oldest for 40 s: shop/huge0-deployment, shop/huge1-deployment, shop/huge2-deployment" in said


def test_clusters_have_their_use_their_replicas_and_the_last_room() -> None:
    rows = {each.name: each for each in put_into_words(Scene().taken()).clusters}
    assert (rows["a"].place, rows["a"].state) == ("own, eu", "ready")
    assert rows["a"].uses[0].text == "0 of 6 cores"
    assert rows["a"].uses[1].text == "not said"
    assert (rows["a"].workloads, rows["a"].replicas, rows["b"].replicas) == (1, 1, 2)
    assert re.fullmatch(r"\d+ for shop/\w+, by summary, 5(\.0)? s ago", rows["b"].room)


def test_a_decision_explains_itself() -> None:
    status = put_into_words(Scene().taken())
    web = next(each for each in status.decisions if each.workload == "shop/web")
    assert (web.outcome, web.tone, web.result, web.why) == ("placed", "good", "a 1, b 2", "the placement changed")
    assert {each.name: each.gets for each in web.clusters} == {"a": 1, "b": 2}
    assert "shop/web-deployment, generation 1" in web.facts


@pytest.mark.parametrize(
    ("given", "tone", "text"),
    [
        ({}, "warn", "Degraded metrics: 1 of 1."),
        ({"reachable": False}, "bad", "The API server cannot be reached: https://karmada:5443."),
        ({"problems": ["no lists yet"]}, "bad", "No lists yet."),
    ],
)
def test_the_verdict_names_the_worst_first(given: dict[str, Any], tone: str, text: str) -> None:
    verdict = put_into_words(Scene(**given).taken()).verdict
    assert (verdict.tone, verdict.text) == (tone, text)
    assert "3 workloads without a place." in verdict.more


def test_a_shadow_shows_how_it_compares() -> None:
    scene = Scene(huge=0, shadow=True, mode="shadow")
    assert scene.records.shadow is not None
    scene.records.shadow.count("own-first", ShadowOutcome.REJECTED, ["filter cluster.ready"], {})
    said = text_of(scene)
    assert "Looks at what default-scheduler places, and places nothing itself: 1 workload compared" in said
    assert "filter cluster.ready (1)" in said
    assert "shadow mode over clusters" in said


def test_no_more_are_looked_at_than_a_page_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_snapshot, "MOST_WAITING", 2)
    status = put_into_words(Scene(huge=5).taken())
    assert (sum(each.workloads for each in status.waiting), status.waiting_left_out) == (2, 3)


def test_workloads_may_come_and_go_while_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_snapshot, "_AT_ONCE", 1)
    scene = Scene(huge=5)

    def meanwhile() -> None:
        scene.maker.delete_binding(next(iter(scene.maker.bindings)))
        scene.plane.show_all(scene.maker, 0.0)
        scene.decide()

    assert put_into_words(scene.taken(meanwhile)).clusters


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_the_page_is_whole_on_every_screen(browser: Browser, width: int, scheme: str) -> None:
    html = render(put_into_words(Scene(shadow=True).taken())).html
    with browser.open(html, width=width, scheme=scheme) as view:  # type: ignore[arg-type]
        assert view.barriers() == []
        view.run(lambda page: page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)"))
        assert view.troubles == []
        assert view.requests == []
        assert view.overflow_px() == 0


def test_a_cluster_that_cannot_be_read_says_why() -> None:
    scene = Scene()
    scene.maker.tallies.members.update(
        a=MemberReading(Steady(10.0), "403 Forbidden: no"), b=MemberReading(None, "x"), gone=MemberReading()
    )
    rooms = {row.name: row.room.partition("; ")[2] for row in put_into_words(scene.taken()).clusters}
    assert rooms == {
        "a": "its nodes and pods cannot be read (last read 30 s ago): 403 Forbidden: no",
        "b": "its nodes and pods cannot be read (never read): x",
    }
    scene.maker.tallies.members.update(a=MemberReading(Steady(10.0), "", "odd"), b=MemberReading(Steady(10.0)))
    rooms = {row.name: row.room.partition("; ")[2] for row in put_into_words(scene.taken()).clusters}
    assert rooms == {"a": "nodes and pods read 30 s ago; odd", "b": "nodes and pods read 30 s ago"}
