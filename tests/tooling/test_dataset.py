"""Rows to train a model on: they have what the model gets at each decision, on the node that the pod got."""

from __future__ import annotations

import csv
import io
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.builtins.extensions import untrained
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.signature import Builtin, MaybeNumber, TypeSpec, Words, builtin
from kube_policy_scheduler.lang.types import Depends, Kind, Shape
from kube_policy_scheduler.policy.policy_set import PolicySet, load
from kube_policy_scheduler.tooling.dataset.model_inputs import ModelError, inputs_of
from kube_policy_scheduler.tooling.dataset.rows import (
    Dataset,
    LaterMetric,
    add_recorded,
    add_simulated,
    recorded,
)
from kube_policy_scheduler.tooling.dataset.table import CsvTable
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome
from kube_policy_scheduler.tooling.simulation.metrics_over_time import parse_table
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.tooling.simulation.scenarios import node, pod

SEEN: dict[str, tuple[float, ...]] = {}
"""What the model got last, by node."""


def _no_file(name: str) -> str:
    raise ValueError(f"no file {name}")


@builtin(shape=Shape.NODE, depends=Depends.CLUSTER, scores_only=True, words=Words(trained=True))
def model(
    frame: Any, file: Annotated[Any, TypeSpec(Kind.TEXT, constant=True, prepare=_no_file)], *inputs: MaybeNumber
) -> MaybeNumber:
    """Note the inputs, and return the first."""
    columns = [np.broadcast_to(np.asarray(each, np.float64), (frame.size,)) for each in inputs]
    for at, row in enumerate(np.arange(frame.cluster.nodes.size)[frame.rows]):
        SEEN[frame.cluster.nodes.names[row]] = tuple(float(column[at]) for column in columns)
    return columns[0]


def names_with(function: Builtin) -> Environment:
    return msgspec.structs.replace(
        environment(), builtins=MappingProxyType({**environment().builtins, "model": function})
    )


UNTRAINED = names_with(untrained(model))
TRAINED = names_with(msgspec.structs.replace(untrained(model), kernel=model.kernel))


def policies(*texts: str, names: Environment = UNTRAINED) -> PolicySet:
    loaded = load([Source(f"p{at}.policy", text) for at, text in enumerate(texts)], names, rules=False)
    assert loaded.policy_set is not None, [str(each) for each in loaded.diagnostics]
    return loaded.policy_set


class Table:
    """A dataset, with its lines."""

    def __init__(
        self, *texts: str, metrics: str = "", later: tuple[LaterMetric, ...] = (), most: int = 99, model: str = ""
    ) -> None:
        self.text = ""
        made = policies(*texts)
        queries = [*made.queries, *(each.query for each in later)]
        played = parse_table(Source("m.csv", metrics), queries) if metrics else None
        self.variant = PolicyVariant("test", made, metrics=played)
        inputs = inputs_of(made.policies, model=model or None)
        self.dataset = Dataset(
            inputs, self.variant, pods=UNTRAINED.pods, table=CsvTable(self._emit), most=most, later=later
        )

    def _emit(self, line: str) -> None:
        self.text += line

    @property
    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.text)))

    def column(self, name: str) -> list[str]:
        return [row[name] for row in self.rows]

    def simulate(self, arrivals: list[Arrival], *, decider: PolicyVariant | None = None) -> None:
        scenario = Scenario([node("a"), node("b"), node("c", cpu="8")], arrivals)
        add_simulated(
            self.dataset, scenario, decider or self.variant, seed=0, stopwatch=lambda: 0.0,
            progress=lambda done, of: None, stop=lambda: False,
        )  # fmt: skip

    def read(self, things: list[Any], *records: DecisionRecord) -> None:
        add_recorded(
            self.dataset, things, recorded(records), kubernetes=DEFAULT_RULES,
            progress=lambda done, of: None, stop=lambda: False,
        )  # fmt: skip


CALL = """\
let spare = node.free.cpu / 1core
score model("price.onnx", spare, count(p in node.pods), pod.queued / 1s, pod.priority)
"""
STREAM = [Arrival(10.0 * at, f"p{at}", pod(cpu=f"{500 + 250 * (at % 3)}m", priority=at), 45.0) for at in range(12)]
"""Several nodes have room for each pod: a node that is the only one is not scored."""


def test_rows_have_what_the_model_gets_when_it_decides() -> None:
    """The same stream twice: a model that notes its inputs decides, and the rows have these, bit by bit."""
    SEEN.clear()
    deciding = PolicyVariant("test", policies(CALL, names=TRAINED))
    table, wanted = Table(CALL), []
    kept = table.dataset.add

    def add(frame: Any, host: str, **known: Any) -> None:
        wanted.append(SEEN[host])
        kept(frame, host, **known)

    table.dataset.add = add  # type: ignore[method-assign]
    table.simulate(STREAM, decider=deciding)
    columns = list(table.rows[0])[3:7]
    assert columns == ["spare", "count(p in node.pods)", "pod.queued / 1s", "pod.priority"]
    assert [tuple(float(row[name]) for name in columns) for row in table.rows] == wanted
    assert len({*wanted}) > 6


def test_a_row_has_the_time_the_pod_the_node_and_the_outcome() -> None:
    table = Table("score model('price.onnx', node.free.cpu / 1core)".replace("'", '"'))
    table.simulate([Arrival(0, "first", pod(cpu="8"), 60), Arrival(10, "second", pod(cpu="8"))])
    assert table.text == (
        "time,pod,node,node.free.cpu / 1core,wait_seconds,runtime_seconds\n"
        "0,default/first,c,8,0,60\n"
        "60,default/second,c,8,50,\n"
    )


def test_only_pods_of_policies_that_call_the_model_have_rows() -> None:
    texts = (
        'policy learned\nfor pods where pod.priority > 5\nscore model("m.onnx", node.free.cpu / 1core)',
        "policy plain\nfor pods where pod.priority <= 5\nfilter true",
    )
    table = Table(*texts)
    table.simulate(STREAM)
    assert table.column("pod") == [f"default/p{at}" for at in range(6, 12)]


def test_it_ends_at_the_last_row_that_is_wanted() -> None:
    table = Table(CALL, most=3)
    table.simulate(STREAM)
    assert len(table.rows) == 3
    assert table.dataset.is_full


def test_what_is_missing_or_too_large_for_the_model_is_empty() -> None:
    table = Table('score model("m.onnx", number(node.label.speed), pod.priority * 1e30 * 1e30, pod.priority)')
    table.simulate([Arrival(0, "p", pod(priority=4))])
    assert [list(row.values())[3:6] for row in table.rows] == [["", "", "4"]]


METRICS = "time,node,load\n" + "".join(
    f"{at},{name},{at + number}\n" for at in range(0, 601, 60) for number, name in enumerate("abc")
)


def test_an_outcome_is_what_a_query_says_of_the_node_later() -> None:
    later = (LaterMetric("soon", Query("load"), 60), LaterMetric("late", Query("load"), 450))
    table = Table('score model("m.onnx", promql("load"))', metrics=METRICS, later=later)
    table.simulate([Arrival(at, f"p{at}", pod(cpu="8"), 1) for at in (0.0, 130.0, 500.0)])
    assert table.column('promql("load")') == ["2", "122", "482"]
    assert table.column("soon") == ["62", "182", "542"]
    assert table.column("late") == ["422", "542", ""], "the recording has ended by then"


def test_a_value_from_before_the_decision_is_no_outcome() -> None:
    later = (LaterMetric("soon", Query("load"), 10),)
    table = Table('score model("m.onnx", promql("load"))', metrics=METRICS, later=later)
    table.simulate([Arrival(at, f"p{at}", pod(cpu="8"), 1) for at in (0.0, 55.0)])
    assert table.column("soon") == ["", "62"]


OF_PODS = """\
time,namespace,pod,container,ran
60,default,first,main,50
60,default,second,main,7
60,default,second,sidecar,8
60,shop,third,main,9
"""


def test_an_outcome_of_the_pod_is_the_value_that_names_it() -> None:
    later = (LaterMetric("ran", Query("ran"), 60, is_of_pod=True),)
    table = Table('score model("m.onnx", pod.priority)', metrics=OF_PODS, later=later)
    table.simulate([Arrival(0.0, name, pod(cpu="1"), 1) for name in ("first", "second", "third", "fourth")])
    assert dict(zip(table.column("pod"), table.column("ran"), strict=True)) == {
        "default/first": "50",
        "default/second": "",
        "default/third": "",
        "default/fourth": "",
    }, "series that disagree say nothing, nor does a pod of another namespace"


@pytest.mark.parametrize(("seconds", "known"), [(59, ""), (60, "50"), (170, "50"), (190, "")])
def test_an_outcome_of_the_pod_is_newer_than_the_decision_and_not_stale_when_it_is_due(
    seconds: float, known: str
) -> None:
    later = (LaterMetric("ran", Query("ran"), seconds, is_of_pod=True),)
    table = Table('score model("m.onnx", pod.priority)', metrics=OF_PODS, later=later)
    table.simulate([Arrival(0.0, "first", pod(cpu="1"), 1)])
    assert table.column("ran") == [known]


def record(name: str, at: float, outcome: Outcome = Outcome.ASSIGNED, **more: Any) -> DecisionRecord:
    made = pod(cpu="1")
    meta = objects.ObjectMeta(name=name, namespace="default", uid=f"u-{name}")
    return DecisionRecord(time=at, pod=msgspec.structs.replace(made, metadata=meta), outcome=outcome, **more)


def running(name: str, host: str) -> objects.Pod:
    made = record(name, 0).pod
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name=host))


FREE = 'score model("m.onnx", node.free.cpu / 1core)'


def test_recorded_pods_are_placed_again_as_they_were_one_after_another() -> None:
    table = Table(FREE)
    things = [node("a"), node("b"), running("x", "a"), running("y", "a"), running("other", "a")]
    table.read(
        things,
        record("y", 30.0, node="a", queued=10.0),
        record("x", 20.0, Outcome.UNSCHEDULABLE),
        record("x", 25.0, node="a", queued=20.0),
        record("never", 26.0, Outcome.HELD),
    )
    assert [list(row.values()) for row in table.rows] == [
        ["25", "default/x", "a", "3", "5", ""],
        ["30", "default/y", "a", "2", "20", ""],
    ]


@pytest.mark.parametrize(
    ("decided", "hosts"),
    [
        ([record("x", 1.0, node="a"), record("x", 2.0, Outcome.BIND_FAILED, node="a")], []),
        ([record("x", 1.0, Outcome.WAITING, node="a")], ["a"]),
        ([record("x", 1.0, Outcome.WAITING, node="a"), record("x", 2.0, Outcome.UNSCHEDULABLE)], []),
        ([record("x", 1.0, Outcome.SHADOW, node="a", theirs="b")], ["b"]),
        ([record("x", 1.0, Outcome.SHADOW, node="a", verdict="gone")], []),
        ([record("x", 1.0, node="b"), record("x", 2.0, Outcome.FAILED)], ["b"]),
        ([record("x", 1.0, Outcome.PREEMPTING, node="a"), record("x", 3.0, node="a")], ["a"]),
    ],
)
def test_the_node_is_the_one_that_the_pod_really_got(decided: list[DecisionRecord], hosts: list[str]) -> None:
    table = Table(FREE)
    table.read([node("a"), node("b")], *decided)
    assert table.column("node") == hosts


def test_pods_that_were_evicted_for_another_are_gone_when_it_comes() -> None:
    table = Table(FREE)
    evicts = record("big", 20.0, Outcome.PREEMPTING, node="a", victims=("default/x", "default/old", "default/unknown"))
    table.read([node("a"), running("old", "a")], record("x", 10.0, node="a"), evicts, record("big", 30.0, node="a"))
    assert table.column("node.free.cpu / 1core") == ["3", "4"]


def test_decisions_on_nodes_that_are_gone_are_counted() -> None:
    table = Table(FREE)
    table.read([node("a")], record("x", 1.0, node="gone"), record("y", 2.0, node="a"))
    assert (table.column("pod"), table.dataset.without_node) == (["default/y"], 1)


@pytest.mark.parametrize(
    ("texts", "wanted", "said"),
    [
        (("filter true",), None, "the policies call no model"),
        (('score model("a.onnx", 1) + model("b.onnx", 2)',), None, "several models: choose one of a.onnx and b.onnx"),
        (('score model("a.onnx", 1)',), "c.onnx", "the policies call no model c.onnx; they call a.onnx"),
        (
            ('score model("a.onnx", 1) + model("a.onnx", 2)',),
            None,
            "a.onnx has other inputs at p0.policy:1:7 than at p0.policy:1:28",
        ),
        (('score model("a.onnx")',), None, "p0.policy:1:7: the model has no inputs"),
        (('score model("a.onnx", normalize(node.free.cpu))',), None, "compares all nodes that pass the filters"),
    ],
)
def test_one_model_with_one_list_of_inputs_is_needed(texts: tuple[str, ...], wanted: str | None, said: str) -> None:
    with pytest.raises(ModelError, match=said.replace("(", r"\(")):
        inputs_of(policies(*texts).policies, model=wanted)


def test_inputs_that_are_written_alike_have_names_of_their_own() -> None:
    text = 'def f(x) = model("a.onnx", x, x)\nscore f(pod.priority)'
    assert inputs_of(policies(text).policies, model=None).names == ("x", "x (2)")


def test_an_input_has_another_name_than_what_each_dataset_has() -> None:
    text = 'let wait_seconds = pod.priority\nscore model("a.onnx", wait_seconds)'
    assert inputs_of(policies(text).policies, model=None).names == ("wait_seconds (2)",)
