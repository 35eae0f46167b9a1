"""The values of one expression in a cluster: on each node, of each pod, or one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.compiling.expressions import Compiler, captured_values
from kube_policy_scheduler.lang.environment import Environment, Item
from kube_policy_scheduler.lang.types import BYTES, CORES, SECONDS, TRUTH, Depends, Info, Kind, Shape
from kube_policy_scheduler.tooling.cluster_state import ClusterState
from kube_policy_scheduler.tooling.text_table import Terminal
from kube_policy_scheduler.tooling.why.scores import Value, shown, value_at

_OF_POD = Depends.TEMPLATE | Depends.POD | Depends.QUEUE


class Subject(Enum):
    """What an expression has values for."""

    NODES = "nodes"
    """Each node."""
    RUNNING_PODS = "running pods"
    """Each pod on a node: `p.request.cpu`."""
    PODS = "pods"
    """Each pod, also those that wait, as if it were to be placed: `pod.request.cpu`."""
    CLUSTER = "cluster"
    """One value: of the cluster, of the clock, or of the pod that is named."""


@dataclass(frozen=True, slots=True)
class Row:
    """One value, and what it is of."""

    value: Value
    node: str | None = None
    pod: str | None = None
    """`namespace/name`"""


@dataclass(frozen=True, slots=True)
class ExpressionValues:
    """What an expression gives."""

    text: str
    info: Info
    subject: Subject
    rows: tuple[Row, ...]
    pod: str | None = None
    """The pod that `pod.…` was, `namespace/name`; None where none was named."""


class NeedsPod(ValueError):
    """The value is one of each node for a pod, and no pod is named."""


def reads_pod(value: typed.Typed) -> bool:
    """Return whether a value follows from the pod that is placed."""
    return any(_reads_pod(part) for part in typed.below(value))


def _reads_pod(part: typed.Typed) -> bool:
    match part:
        case typed.Read(field=field, info=info):
            return info.shape is Shape.DECISION and bool(field.depends & _OF_POD)
        case typed.Apply(builtin=builtin):
            return bool(builtin.depends & _OF_POD)
        case _:
            return False


def values_of(
    value: typed.Typed,
    environment: Environment,
    state: ClusterState,
    *,
    pod: objects.Pod | None = None,
    signals: Signals = Signals.EMPTY,
    now: float = 0.0,
) -> ExpressionValues:
    """Return the values of an expression without errors.

    Args:
        value: the expression.
        environment: what it was checked with.
        state: the cluster.
        pod: what `pod.…` is; None: each pod of the cluster.
        signals: the metrics that it reads.
        now: Unix seconds.

    Raises:
        NeedsPod: it has a value for each node and pod, and `pod` is None.
    """
    cluster = state.cluster
    asked = pod if pod is not None else objects.Pod(metadata=objects.ObjectMeta(name=""))
    info = cluster.templates.pod(asked)
    frame = Frame(info, cluster, now, signals=signals, queued=info.created)
    compiler, text = Compiler(environment.pods), " ".join(value.span.text.split())
    key = f"{info.namespace}/{info.name}" if pod is not None else None
    per_pod = pod is None and reads_pod(value)
    if value.info.shape is Shape.ITEM:
        rows = tuple(_of_running_pods(value, compiler, frame))
        return ExpressionValues(text, value.info, Subject.RUNNING_PODS, rows, key)
    evaluate = compiler.compile(value)
    if value.info.shape is Shape.NODE:
        if per_pod:
            raise NeedsPod("the expression has a value for each node and pod: name one with --pod")
        answer = evaluate(frame)
        found = (Row(value_at(answer, at, value.info), name) for at, name in enumerate(cluster.nodes.names) if name)
        return ExpressionValues(text, value.info, Subject.NODES, tuple(sorted(found, key=_place)), key)
    if per_pod:
        rows = tuple(_of_pods(evaluate, value.info, frame, state))
        return ExpressionValues(text, value.info, Subject.PODS, rows, None)
    return ExpressionValues(text, value.info, Subject.CLUSTER, (Row(value_at(evaluate(frame), 0, value.info)),), key)


def _place(row: Row) -> tuple[str, str]:
    return row.pod or "", row.node or ""


def _of_pods(evaluate: Callable[[Any], Any], info: Info, frame: Frame, state: ClusterState) -> Iterator[Row]:
    for key in sorted(state.pods):
        pod = state.cluster.templates.pod(state.pods[key])
        asked = msgspec.structs.replace(frame, pod=pod, queued=pod.created)
        yield Row(value_at(evaluate(asked), 0, info), pod.node_name or None, key)


def _of_running_pods(value: typed.Typed, compiler: Compiler, frame: Frame) -> Iterator[Row]:
    evaluate, captures = compiler.item(value)
    captured = captured_values(captures, frame)
    absent = typed.Missing(Info(TRUTH, value.info.shape, False, value.info.depends), value.span, False, value)
    is_absent, more = compiler.item(absent)
    also_captured = captured_values(more, frame)
    there = ((row, pod) for row, pods in frame.cluster.pod_states().on_rows() for pod in pods)
    for row, pod in sorted(there, key=lambda each: (each[1].namespace, each[1].name)):
        missing = value.info.maybe and bool(is_absent(_item(pod, also_captured, frame)))
        answer = None if missing else value_at(evaluate(_item(pod, captured, frame)), 0, value.info)
        yield Row(answer, frame.cluster.nodes.names[row], f"{pod.namespace}/{pod.name}")


def _item(pod: PodInfo, captured: tuple[Any, ...], frame: Frame) -> Item:
    return Item(pod.template, captured, pod, frame.now)


def lines(found: ExpressionValues, *, to: Terminal) -> Iterator[str]:
    """Yield the values for people; of one value, that alone."""
    unit = found.info.type.unit if found.info.type.kind is Kind.NUMBER else None
    as_bytes, as_seconds = (unit is not None and unit.same_dimension(each) for each in (BYTES, SECONDS))
    texts = [shown(row.value, as_bytes=as_bytes, as_seconds=as_seconds) for row in found.rows]
    if found.subject is Subject.CLUSTER:
        yield from texts
        return
    rows = [(row.pod or "", row.node or "-", text) for row, text in zip(found.rows, texts, strict=True)]
    if not rows:
        yield f"the cluster has no {found.subject.value}"
        return
    of_pods = found.subject in (Subject.PODS, Subject.RUNNING_PODS)
    head = ("pod" if of_pods else "", "node", "value")
    yield from to.table([head, *rows], right_from=2 if unit is not None else 3)


def data(found: ExpressionValues) -> dict[str, Any]:
    """Return the values for programs: amounts in cores, bytes and seconds, what is missing as null."""
    kind = found.info.type
    units = {CORES: "cores", BYTES: "bytes", SECONDS: "seconds"}
    values = []
    for row in found.rows:
        names = {"pod": row.pod, "node": row.node}
        values.append({**{name: text for name, text in names.items() if text is not None}, "value": row.value})
    return {
        "expression": found.text,
        "of": found.subject.value,
        "type": kind.kind.value,
        "unit": units.get(kind.unit, str(kind.unit)) if kind.kind is Kind.NUMBER and not kind.unit.plain else None,
        "pod": found.pod,
        "values": values,
    }
