"""The page of `policyctl why`, opened in a browser: the right figures, no errors, readable on a phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run
from tests.fakes.browser import Browser

CLUSTER: dict[str, Any] = {
    "kind": "List",
    "apiVersion": "v1",
    "items": [
        *(
            {
                "kind": "Node",
                "apiVersion": "v1",
                "metadata": {"name": name, "labels": {"disk": disk}},
                "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
            }
            for name, disk, cpu in (("a", "ssd", "4"), ("b", "hdd", "2"), ("c", "<b>", "2"))
        ),
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "nodeName": "b",
                "schedulerName": "policy-scheduler",
                "containers": [{"name": "m", "resources": {"requests": {"cpu": "1"}}}],
            },
        },
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": "big", "namespace": "shop"},
            "spec": {
                "schedulerName": "policy-scheduler",
                "containers": [{"name": "m", "resources": {"requests": {"cpu": "5"}}}],
            },
        },
    ],
}
POLICY = "filter fits(cpu, mem) and not label disk=nvme\nscore 10 if label disk=ssd\nscore -5 if label disk=hdd\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster.json").write_text(json.dumps(CLUSTER))
    (tmp_path / "a.policy").write_text(POLICY)
    return tmp_path


def why(folder: Path, pod: str) -> Path:
    given = ["--cluster", str(folder / "cluster.json"), "--policies", str(folder / "a.policy")]
    code = run(["why", pod, *given, "--html", str(folder / "why.html")])
    assert code in (0, 1)
    return folder / "why.html"


def test_a_pod_that_fits_nowhere(folder: Path, browser: Browser) -> None:
    with browser.open(why(folder, "big")) as view:
        assert view.troubles == []
        assert view.requests == []
        assert "shop/big fits none of 3 nodes" in view.text(".verdict")
        assert "too little free cpu" in view.text(".verdict") or "fits(cpu, mem)" in view.text(".verdict")
        assert view.texts(".figures strong")[:2] == ["0", "3"]
        assert any("request 4 cpu or less, instead of 5" in text for text in view.texts("tbody tr"))
        assert view.texts(".card h3") == ["a", "c", "b"]
        assert view.texts("tr.strong .tag")[0] == "main cause"


def test_a_pod_that_would_go_elsewhere(folder: Path, browser: Browser) -> None:
    with browser.open(why(folder, "web")) as view:
        assert view.troubles == []
        assert "is on b, but would go to a now" in view.text(".verdict.warn")
        assert view.texts(".ranked > .number") == ["10", "0", "-5"]
        assert view.texts(".ranked .chosen") == ["a"]
        assert view.texts("tr.total td.number") == ["10", "0", "-5"]
        widths = view.run(lambda page: page.eval_on_selector_all(".stack i", "all => all.map(e => e.offsetWidth)"))
        assert len(widths) == 1
        assert widths[0] > 100


@pytest.mark.parametrize("pod", ["big", "web"])
def test_the_page_fits_a_phone_without_sideways_scrolling(folder: Path, browser: Browser, pod: str) -> None:
    with browser.open(why(folder, pod), width=375, scheme="dark") as view:
        assert view.barriers() == []
        assert view.troubles == []
        assert view.overflow_px() == 0


def test_what_the_cluster_says_is_text_and_not_markup(folder: Path, browser: Browser) -> None:
    (folder / "a.policy").write_text('filter node.name == "<b>"\n')
    with browser.open(why(folder, "big")) as view:
        assert view.run(lambda page: page.locator("b").count()) == 0
