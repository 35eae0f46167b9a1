"""Metrics change in virtual time: tables, answers of range queries, gaps and what is stale."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube_policy_scheduler.cluster.signals import About, Query
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.simulation.metrics_over_time import (
    MetricsOverTime,
    Playback,
    WrongAnswerError,
    of_results,
    parse_answers,
    parse_table,
)
from kube_policy_scheduler.tooling.simulation.run import Run, run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.tooling.simulation.scenarios import node, pod

LOAD = Query("load")
FRESH = 'filter (promql("load") ?? 100) < 50'


def table(text: str, *queries: Query) -> MetricsOverTime:
    return parse_table(Source("metrics.csv", text), queries or (LOAD,))


def matrix(*series: tuple[dict[str, str], list[tuple[float, str]]]) -> dict[str, Any]:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def values(metrics: MetricsOverTime, at: float, query: Query = LOAD) -> dict[str, float] | float | None:
    """Return what a query answers at a time by node, as a scheduler that starts then reads it."""
    signals = Playback(metrics, (query,)).advance(at)
    reading = signals.reading(query) if signals is not None else None
    if reading is None or reading.age_seconds(at) > query.stale_after_seconds:
        return None
    return reading.scalar if reading.scalar is not None else {one.labels["node"]: one.value for one in reading.series}


def simulated(metrics: MetricsOverTime, policy: str, arrivals: list[Arrival], *, starts_at: float = 0.0) -> Run:
    made = load([Source("test.policy", policy)]).policy_set
    assert made is not None
    variant = PolicyVariant("test", made, metrics=metrics)
    scenario = Scenario([node("a1"), node("b1")], arrivals, starts_at=starts_at)
    return run(scenario, variant, seed=0, stopwatch=lambda: 0.0)


def test_a_value_holds_until_the_next_sample() -> None:
    found = table("time,node,load\n0,a1,10\n0,b1,20\n60,a1,30\n60,b1,40\n120,a1,\n120,b1,50\n")
    assert values(found, 59) == {"a1": 10, "b1": 20}
    assert values(found, 60) == {"a1": 30, "b1": 40}
    assert values(found, 120) == {"b1": 50}, "a1 has no sample where one was due"


def test_after_a_gap_values_are_missing_as_long_as_the_query_says() -> None:
    found = table("time,node,load\n" + "".join(f"{at},a1,{at}\n" for at in (0, 60, 120, 900, 960, 1020)))
    assert values(found, 120 + 60 + 120) == {"a1": 120}
    assert values(found, 120 + 60 + 121) is None
    assert values(found, 900) == {"a1": 900}
    assert values(found, 120 + 60 + 121, Query("load", stale_after_seconds=600)) == {"a1": 120}


def test_nodes_that_are_scraped_at_other_times_do_not_flicker() -> None:
    rows = [(15 * step + shift + jitter, name, step) for step in range(20)
            for name, shift, jitter in (("a1", 0, 0.002 * (step % 3)), ("b1", 7, -0.003 * (step % 2)))]  # fmt: skip
    found = table("time,node,load\n" + "".join(f"{at},{name},{value}\n" for at, name, value in rows))
    playback = Playback(found, (LOAD,))
    for at in range(30, 270):
        signals = playback.advance(at)
        if signals is not None:
            reading = signals.reading(LOAD)
            assert reading is not None
            assert len(reading.series) == 2


def test_one_moment_holds_for_ever_and_a_table_without_labels_is_for_all_nodes() -> None:
    assert values(table("time,node,load\n0,a1,10\n"), 1e7) == {"a1": 10}
    assert values(table("time,load\n0,10\n60,20\n"), 70) == 20


def test_columns_are_queries_or_metrics_that_queries_select() -> None:
    queries = (Query('load{job="x"}'), Query("sum by (node) (rate(requests[5m]))"), Query("other"))
    text = "time,node,job,load,sum by (node) (rate(requests[5m]))\n0,a1,x,1,2\n0,a1,y,3,\n"
    found = table(text, *queries)
    assert found.names() == {queries[0].promql, queries[1].promql}
    assert values(found, 0, queries[0]) == {"a1": 1}


def test_answers_of_range_queries() -> None:
    answer = matrix(({"__name__": "load", "node": "a1"}, [(1e9, "1"), (1e9 + 60, "2")]))
    found = parse_answers(Source("m.json", json.dumps(answer)), (LOAD, Query("other")))
    assert (found.first, found.last, found.is_relative) == (1e9, 1e9 + 60, False)
    assert values(found, 1e9 + 61) == {"a1": 2}
    named = {"scalar(sum(load))": matrix(({}, [(0, "7")])), "load": answer, "unread": answer}
    queries = (LOAD, Query("scalar(sum(load))"))
    found = parse_answers(Source("m.json", json.dumps(named)), queries)
    assert values(found, 10, queries[1]) == 7
    parts = [(LOAD, [{"metric": {"node": "a1"}, "values": [[at, str(at)]]}]) for at in (0, 60)]
    assert values(of_results(parts), 60) == {"a1": 60}


def test_a_series_that_another_replaces_does_not_contradict_it() -> None:
    answer = matrix(
        ({"node": "a1", "pod": "old"}, [(0, "1"), (60, "2")]), ({"node": "a1", "pod": "new"}, [(120, "3"), (180, "4")])
    )
    found = parse_answers(Source("m.json", json.dumps(answer)), (LOAD,))
    assert values(found, 60) == {"a1": 2}
    assert values(found, 120) == {"a1": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,load\na1,1\n", "there is no column `time`"),
        ("time,node,laod\n0,a1,1\n", "no column is a query that the policies read; they read: load"),
        ("time,node,load\n0,a1,x\n", "line 2, column load: expected a number or nothing, found 'x'"),
        ("time,node,load\nnoon,a1,1\n", "line 2, column time: expected RFC 3339 or Unix seconds, found 'noon'"),
        ("time,node,load\n1700000000000,a1,1\n", "column time: these are milliseconds, expected seconds"),
        ("time,node,load\n0,a1\n", "line 2: expected 3 columns as in the first line, found 2"),
        ("time,node,node,load\n0,a1,a1,1\n", "the column node appears 2 times"),
        ("", "the table is empty"),
        ('time,node,load\n0,"a1,1\n', "not CSV"),
    ],
)
def test_strange_tables_are_refused_with_their_line(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        table(text)
    assert message in caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"status": "error", "error": "parse error"}, "not answers of Prometheus"),
        ({"data": {"resultType": "vector", "result": []}}, "the answer is a vector, expected a matrix"),
        ({"load": {"error": "bad query"}}, "the answer is an error: bad query"),
        ({"load": {"status": "error"}}, "the answer is an error: no data"),
        (matrix(({"node": "a1"}, [(0, "x")])), "expected samples as [seconds, text]"),
        (matrix(({"node": "a1"}, [(-5, "1")])), "not in Unix seconds"),
    ],
)
def test_strange_answers_are_refused(answer: Any, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_answers(Source("m.json", json.dumps(answer)), (LOAD,))
    assert message in caught.value.diagnostics[0].message


@pytest.mark.parametrize(("starts_at", "said"), [(0, True), (50, False), (200, False), (260, False), (301, True)])
def test_samples_of_another_time_than_that_of_the_pods_are_pointed_out(starts_at: float, said: bool) -> None:
    metrics = table("time,node,load\n200,a1,10\n300,a1,20\n")
    loaded = load([Source("a.policy", 'score promql("load") ?? 0\n')]).policy_set
    scenario = Scenario([node("a1")], [Arrival(0, "p", pod(), 10), Arrival(160, "q", pod(), 10)], starts_at=starts_at)
    notes = PolicyVariant("one", loaded, metrics=metrics).notes(scenario)
    assert any("no metric has a sample in the time that is simulated" in note for note in notes) is said


def test_an_answer_that_may_be_to_several_queries_is_refused() -> None:
    answer = matrix(({"node": "a1"}, [(0, "1")]))
    with pytest.raises(DocumentError) as caught:
        parse_answers(Source("m.json", json.dumps(answer)), (LOAD, Query("other")))
    assert "does not say which query it is for, and the policies read 2" in caught.value.diagnostics[0].message
    for result in ("text", [1], [{"metric": {"node": 1}}], [{"values": [[0, "x"]]}], [{"values": [[0]]}]):
        with pytest.raises(WrongAnswerError, match="not a valid matrix"):
            of_results([(LOAD, result)])


def test_pods_go_where_the_metric_says_at_that_moment_and_wait_until_it_lets_them() -> None:
    found = table("time,node,load\n0,a1,90\n0,b1,95\n60,a1,90\n60,b1,10\n120,a1,10\n120,b1,90\n")
    done = simulated(found, FRESH, [Arrival(0, "p", pod(), 10), Arrival(130, "q", pod(), 10)])
    assert done.wait_seconds == (60, 0)
    assert done.unplaced == 0


def test_a_metric_that_ends_is_missing_later() -> None:
    found = table("time,node,load\n" + "".join(f"{at},a1,1\n{at},b1,1\n" for at in range(0, 181, 60)))
    arrivals = [Arrival(0, "p", pod(), 10), Arrival(355, "q", pod(), 10), Arrival(400, "r", pod(), 10)]
    done = simulated(found, FRESH, arrivals)
    assert (done.placed, done.unplaced) == (2, 1)


def test_times_below_a_few_years_count_from_the_beginning() -> None:
    found = table("time,node,load\n0,a1,90\n0,b1,95\n60,a1,10\n60,b1,95\n").beginning(1e9)
    done = simulated(found, FRESH, [Arrival(0, "p", pod(), 10)], starts_at=1e9)
    assert done.wait_seconds == (60,)


def test_a_metric_of_the_cluster() -> None:
    query = Query("sum(load)", about=About.CLUSTER)
    found = table("time,sum(load)\n0,1\n60,2\n", query)
    reading = Playback(found, (query,)).advance(60)
    assert reading is not None
    answer = reading.reading(query)
    assert answer is not None
    assert [one.value for one in answer.series] == [2]
