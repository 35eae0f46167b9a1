"""`policyctl simulate --fleet` where a transcript does not reach: Ctrl-C, and the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_policy_scheduler.cli import fleet_simulation
from kube_policy_scheduler.cli.main import run

FLEET = """\
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: a}
spec: {syncMode: Push, provider: own}
status:
  apiEnablements: [{groupVersion: apps/v1, resources: [{kind: Deployment, name: deployments}]}]
  conditions: [{type: Ready, status: "True"}]
  resourceSummary: {allocatable: {cpu: "60", pods: "110"}}
"""
WORKLOADS = "workloads: [{name: web, replicas: 2, cpu: 1, count: 10, every: 10min}]"
POLICY = "for workloads where true\ndivide best first\n"
COMMAND = ["simulate", "a.policy", "--fleet", "fleet.yaml", "--workloads", "workloads.yaml"]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"fleet.yaml": FLEET, "workloads.yaml": WORKLOADS, "a.policy": POLICY}.items():
        Path(name).write_text(text)


def test_ctrl_c_shows_what_is_done_so_far(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = 0

    @contextmanager
    def pressed() -> Iterator[Callable[[], bool]]:
        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > 6

        yield stop

    monkeypatch.setattr(fleet_simulation, "interruptible", pressed)
    assert run([*COMMAND, "--format", "json", "--against", "karmada"]) == 130
    shown = capsys.readouterr()
    (partial,) = json.loads(shown.out)["variants"]
    assert partial["interrupted"]
    assert 0 < partial["workloads"] < 10
    assert "was not simulated" in shown.err
    assert "is partial: it ends after" in shown.err


def test_the_page_is_written() -> None:
    assert run([*COMMAND, "--html", "page.html"]) == 0
    assert "Replicas that do not run" in Path("page.html").read_text()
