"""`policyctl test --init` for policies of workloads: cases that pass, and show what the policy says."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.cli.coverage import Coverage
from kube_policy_scheduler.cli.first_test import write_first_test
from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.tooling.coverage.measure import totals

FLEET = Path(__file__).parents[2] / "policies" / "fleet"
SHIPPED = sorted(FLEET.glob("*.policy"))
QUICK = ("at-most-four", "back-slowly", "least-loaded", "team-limits", "true-room")
"""Of these many, the ones whose cases are also tried among the quick tests."""
POLICY = """\
for workloads where workload.kind == "Deployment" and workload.label.tier in ["web", "api"]

hold if workload.annotation.paused == "true"
metric load = promql("cluster:cpu:ratio") by cluster
filter load ?? 1 < 0.8 else "the CPUs are busy"
score 1000 if cluster.provider == "own"
score -(cluster.price ?? 9)
choose 2 clusters over region at least 2 if workload.replicas >= 6
divide best first
rebalance at most 2 rest 10min if cluster.condition_age.Ready ?? 0s > 10min
"""


def test_the_cases_show_each_clause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("web.policy").write_text(POLICY)
    assert run(["test", "--init", "web.policy"]) == 0
    said = capsys.readouterr().out
    assert Path("web.test.yaml").read_text() == snapshot
    assert said == snapshot
    assert run(["test", "web.test.yaml"]) == 0


@pytest.mark.parametrize(
    "policy",
    [pytest.param(each, id=each.stem, marks=[] if each.stem in QUICK else pytest.mark.long) for each in SHIPPED],
)
def test_the_cases_of_any_policy_pass_and_reach_all_clauses(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "made.test.yaml"
    (tmp_path / policy.name).write_text(policy.read_text())
    write_first_test(tmp_path / policy.name, str(target))
    loaded, coverage = load_suite(target), Coverage()
    assert {result.state.value for result in coverage.run(loaded).results()} == {"pass"}
    clauses, _ = totals(coverage.measured())
    assert clauses.percent == 100


def test_what_cannot_be_varied_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.policy").write_text(
        'for workloads where true\nfilter not ("gpu" in cluster.taints)\ndivide evenly\n'
    )
    write_first_test(tmp_path / "a.policy", str(tmp_path / "a.test.yaml"))
    assert "The tool cannot vary what these read" in (tmp_path / "a.test.yaml").read_text()
    assert "- cluster.taints (line 2)" in (tmp_path / "a.test.yaml").read_text()
