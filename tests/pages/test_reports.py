"""The pages of `policyctl impact` and `policyctl drift`: the figures of the JSON are those on the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.installation import command_for
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object
from tests.fakes.browser import Browser

POLICIES = {
    "old": "filter fits(cpu, mem)\nscore 20 if label disk=ssd\n",
    "new": "filter fits(cpu, mem)\nscore 20 if label disk=hdd\nfilter pod.label.app != 'a0'\n".replace("'", '"'),
}
COMMANDS = {
    "impact": ["impact", "old.policy", "new.policy", "--cluster", "c.json"],
    "drift": ["drift", "--policies", "new.policy", "--cluster", "c.json"],
    "doctor": ["doctor", "--policies", "new.policy", "--cluster", "c.json", "--strict"],
}

SIMULATE = ["simulate", "kubernetes", "old.policy", "--cluster", "c.json", "--pods", "pods.yaml"]
CAPACITY = [
    "capacity",
    "--policies",
    "old.policy",
    "--cluster",
    "c.json",
    "--at-least",
    "20",
    "--pod",
    "pod.yaml",
    "--removable",
]
EVERY = COMMANDS | {"simulate": SIMULATE, "capacity": CAPACITY}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    items = [
        node_object({"name": name, "cpu": 4, "mem": "8Gi", "zone": f"z-{name}", "labels": {"disk": disk}})
        for name, disk in (("a", "ssd"), ("b", "hdd"))
    ]
    for at in range(3):
        form = {"cpu": 1, "node": "a", "labels": {"app": f"a{at}"}}
        pod = pod_object(form, name=f"p{at}", uid=f"uid-{at}")
        pod["spec"]["schedulerName"] = "policy-scheduler"
        items.append(pod)
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    (tmp_path / "pod.yaml").write_text("{name: web, cpu: 1}\n")
    (tmp_path / "pods.yaml").write_text("pods: [{name: web, cpu: 1, lasts: 1min}]\n")
    for name, text in POLICIES.items():
        (tmp_path / f"{name}.policy").write_text(text)
    return tmp_path


@pytest.fixture(params=COMMANDS)
def report(request: pytest.FixtureRequest, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, Any, Path]:
    assert run([*COMMANDS[request.param], "--format=json", "--html", "report.html"]) == 1
    return request.param, json.loads(capsys.readouterr().out), folder / "report.html"


def test_the_page_matches_the_json(report: tuple[str, Any, Path], browser: Browser) -> None:
    name, found, path = report
    with browser.open(path) as view:
        assert view.barriers() == []
        assert view.troubles == []
        assert view.requests == []
        assert found["headline"] in view.text(".verdict")
        figures = view.texts(".figures strong")
        rows = view.texts("table.findings tbody tr" if name == "doctor" else "table.pods tbody tr")
    if name == "doctor":
        assert figures == [str(found["counts"][key]) for key in ("problem", "warning", "could-not-check", "ok")]
        assert len(rows) == len(found["findings"]) > 2
        assert {one["subject"] for one in found["findings"]} <= {row.split("\t")[1].split("\n")[0] for row in rows}
        return
    if name == "impact":
        counts = found["counts"]
        assert figures == [str(number) for number in (3, counts["moved"], counts["lost"], counts["gained"])]
        assert (counts["moved"], counts["lost"]) == (2, 1)
        assert len(rows) == len(found["changes"]) == 3
        assert rows[0].startswith("default/p0\ta\tunschedulable")
        assert "new.policy:3:1" in rows[0]
    else:
        assert figures == [str(number) for number in (3, found["rejected"], found["better"], 0)]
        assert (found["rejected"], found["better"]) == (1, 2)
        assert len(rows) == 3
        assert "new.policy:3:1" in rows[0]


def test_the_page_is_readable_on_a_phone_in_the_dark(report: tuple[str, Any, Path], browser: Browser) -> None:
    with browser.open(report[2], width=375, scheme="dark") as view:
        assert view.barriers() == []
        assert view.troubles == []
        assert view.overflow_px() == 0
        paper = view.run(lambda page: page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert paper == "rgb(18, 21, 27)"


def test_the_charts_of_impact_show_both_sides(folder: Path, browser: Browser) -> None:
    assert run([*COMMANDS["impact"], "--html", "report.html"]) == 1
    with browser.open(folder / "report.html") as view:
        assert len(view.texts("figure.chart")) == 3
        assert view.run(lambda page: page.locator("figure.chart svg text", has_text="z-a").count()) == 1


def test_the_same_gives_the_same_page(folder: Path) -> None:
    pages = []
    for _ in range(2):
        assert run([*COMMANDS["impact"], "--html", "report.html"]) == 1
        pages.append((folder / "report.html").read_bytes())
    assert pages[0] == pages[1]


@pytest.mark.parametrize("command", EVERY)
def test_a_report_that_cannot_be_written_is_an_error_and_the_text_is_printed(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*EVERY[command], "--html", "nowhere/report.html"]) == 2
    done = capsys.readouterr()
    assert "nowhere/report.html" in done.err
    assert len(done.out.splitlines()) > 2


def test_the_page_of_capacity_matches_the_json(
    folder: Path, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*CAPACITY, "--pending", "--lose", "disk", "--format=json", "--html", "report.html"]) == 1
    found = json.loads(capsys.readouterr().out)
    with browser.open(folder / "report.html", width=375, scheme="dark") as view:
        assert view.troubles == []
        assert view.requests == []
        assert view.overflow_px() == 0
        assert found["headline"] in view.text(".verdict")
        assert found["problems"][0] in view.text(".verdict")
        assert len(view.texts("figure.chart")) == 3
        assert len(view.texts("table.nodes tbody tr")) == len(found["removable"]["removable"])


@pytest.mark.parametrize("command", ["capacity", "impact", "simulate"])
def test_without_matplotlib_reports_have_all_but_plots_and_say_what_to_install(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run([*EVERY[command], "--html", "report.html"]) == (0 if command == "simulate" else 1)
    done = capsys.readouterr()
    assert len(done.out.splitlines()) > 2
    advice = f"which the extra `reports` installs: run {command_for('reports')}"
    assert f"report.html has no plots: plots need matplotlib, {advice}" in done.err
    text = (folder / "report.html").read_text()
    assert "Not drawn: plots need matplotlib" in text
    assert "<svg" not in text
