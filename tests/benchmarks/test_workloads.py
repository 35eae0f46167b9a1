"""Every workload does what its name says, on few nodes; and the report distinguishes slower from faster."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from tests.benchmarks import report
from tests.benchmarks.chart import svg
from tests.benchmarks.clauses import CLAUSES, Clause, models, workload_of
from tests.benchmarks.decisions import NOW, Measurement, start
from tests.benchmarks.growth import Curve
from tests.benchmarks.report import Results, missed, slower
from tests.benchmarks.workloads import WORKLOADS, Workload


@pytest.mark.long
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.name)
def test_every_pod_goes_to_a_best_node_of_the_plain_path_with_each_clause(clause: Clause) -> None:
    with models() as are_models:
        if clause.is_model and not are_models:
            pytest.skip("onnxruntime is not installed")
        _decides_as_the_plain_path_does(workload_of(clause))


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_pod_goes_to_a_best_node_of_the_plain_path(workload: Workload) -> None:
    _decides_as_the_plain_path_does(workload)


def _decides_as_the_plain_path_does(workload: Workload) -> None:
    run = start(workload, nodes=50)
    for pod in run.pods(12):
        if workload.meanwhile is not None:
            workload.meanwhile(run, pod)
        frame = Frame(pod, run.cluster, NOW, signals=run.signals)
        wanted = evaluate(frame, run.profile)
        names = [run.cluster.nodes.names[row] for row in wanted.feasible]
        best = {n for n, total in zip(names, wanted.totals, strict=True) if total == wanted.totals.max()}

        decision, victims = run.decide(pod)

        if workload.preempts:
            assert (names, len(victims)) == ([], 3)
            assert decision.host is not None
        elif workload.fits:
            assert decision.host in best
        else:
            assert (names, decision.host) == ([], None)


def _measured(*, relative: float, cpu_us: float = 100.0) -> Results:
    found = Measurement("SchedulingBasic", 5_000, 0, 1, cpu_us, cpu_us, cpu_us, relative, goal=10_000)
    return Results(turn_us=25.0, decisions=[found])


def test_what_costs_more_turns_of_the_reference_loop_than_before_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "baseline", lambda: {"SchedulingBasic/5000": 4.0})

    assert slower(_measured(relative=4.4)) == []
    assert slower(_measured(relative=6.0)) == ["SchedulingBasic/5000: 1.50 times its baseline"]


def test_a_missed_goal_is_named_with_what_was_reached() -> None:
    assert missed(_measured(relative=4.0, cpu_us=99.0)) == []
    assert missed(_measured(relative=4.0, cpu_us=125.0)) == [
        "SchedulingBasic at 5,000 nodes: 8,000/s, the goal is 10,000/s"
    ]


def test_the_chart_shows_every_curve_and_its_points() -> None:
    curves = [
        Curve("nodes", "a < b", (100, 1_000), (50.0, 80.0), (2.0, 3.0)),
        Curve("pods placed", "c", (0, 10), (9.0, 9.0), (1.0, 1.0)),
    ]
    picture = svg(curves, title="growth")

    assert picture.count("<polyline") == 2
    assert picture.count("<circle") == 4
    assert "a &lt; b" in picture
